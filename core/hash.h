#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

struct XXH3_state_s;  // the libraries' own types, defined in hash.cpp's includes
struct evp_md_ctx_st;

namespace slackline {

// XXH3, 64 bits, seed 0: checksums of checkpoint files. Fast (memory speed), not cryptographic.
// Fed in pieces of any size; the digest depends on their concatenation alone.
class Xxh3 {
 public:
  Xxh3();

  void update(std::span<const std::byte> bytes);
  [[nodiscard]] std::uint64_t digest() const;

 private:
  struct Release {
    void operator()(XXH3_state_s* state) const;
  };

  std::unique_ptr<XXH3_state_s, Release> state_;
};

[[nodiscard]] std::uint64_t xxh3(std::span<const std::byte> bytes);

// SHA-256, fed in pieces: the identity of logical weights.
class Sha256 {
 public:
  Sha256();

  void update(std::span<const std::byte> bytes);
  // 64 lower-case hexadecimal digits. REQUIRES: called once, last.
  [[nodiscard]] std::string hex_digest();

 private:
  struct Release {
    void operator()(evp_md_ctx_st* context) const;
  };

  std::unique_ptr<evp_md_ctx_st, Release> context_;
};

// CRC-32C (Castagnoli), as TensorBoard's record files need it: a few hundred bytes a step, so a
// table serves.
[[nodiscard]] std::uint32_t crc32c(std::span<const std::byte> bytes);

// 16 lower-case hexadecimal digits, most significant first.
[[nodiscard]] std::string hex_text(std::uint64_t value);

}  // namespace slackline
