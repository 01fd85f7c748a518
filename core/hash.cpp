#include "core/hash.h"

#include <array>
#include <openssl/evp.h>
#include <xxhash.h>

#include <fmt/format.h>

#include "core/check.h"

namespace slackline {

namespace {

constexpr std::array<std::uint32_t, 256> make_crc32c_table() {
  constexpr std::uint32_t kPolynomial = 0x82f63b78U;  // Castagnoli's, bits reversed
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t byte = 0; byte < table.size(); ++byte) {
    std::uint32_t remainder = byte;
    for (int bit = 0; bit < 8; ++bit) {
      remainder = (remainder >> 1U) ^ ((remainder & 1U) != 0 ? kPolynomial : 0U);
    }
    table[byte] = remainder;
  }
  return table;
}

constexpr std::array<std::uint32_t, 256> kCrc32cTable = make_crc32c_table();

}  // namespace

void Xxh3::Release::operator()(XXH3_state_s* state) const {
  XXH3_freeState(state);
}

Xxh3::Xxh3() : state_(XXH3_createState()) {
  SL_CHECK(state_ != nullptr && XXH3_64bits_reset(state_.get()) == XXH_OK, "XXH3 state");
}

void Xxh3::update(std::span<const std::byte> bytes) {
  XXH3_64bits_update(state_.get(), bytes.data(), bytes.size());
}

std::uint64_t Xxh3::digest() const {
  return XXH3_64bits_digest(state_.get());
}

std::uint64_t xxh3(std::span<const std::byte> bytes) {
  return XXH3_64bits(bytes.data(), bytes.size());
}

void Sha256::Release::operator()(evp_md_ctx_st* context) const {
  EVP_MD_CTX_free(context);
}

Sha256::Sha256() : context_(EVP_MD_CTX_new()) {
  SL_CHECK(EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr) == 1, "SHA-256 context");
}

void Sha256::update(std::span<const std::byte> bytes) {
  SL_CHECK(EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size()) == 1, "SHA-256");
}

std::string Sha256::hex_digest() {
  std::array<unsigned char, 32> digest{};
  SL_CHECK(EVP_DigestFinal_ex(context_.get(), digest.data(), nullptr) == 1, "SHA-256");
  std::string text;
  for (const unsigned char byte : digest) {
    text += fmt::format("{:02x}", byte);
  }
  return text;
}

std::uint32_t crc32c(std::span<const std::byte> bytes) {
  std::uint32_t crc = 0xffffffffU;
  for (const std::byte byte : bytes) {
    crc = (crc >> 8U) ^ kCrc32cTable[(crc ^ static_cast<std::uint32_t>(byte)) & 0xffU];
  }
  return ~crc;
}

std::string hex_text(std::uint64_t value) {
  return fmt::format("{:016x}", value);
}

}  // namespace slackline
