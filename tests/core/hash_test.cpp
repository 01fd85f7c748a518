#include "core/hash.h"

#include <string>
#include <string_view>

#include "tests/support/catch.h"

namespace slackline {

namespace {

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

}  // namespace

TEST_CASE("XXH3 gives the published values, in one piece or many") {
  REQUIRE(hex_text(xxh3(bytes_of(""))) == "2d06800538d394c2");
  std::string text;
  for (int i = 0; i < 100'000; ++i) {
    text += static_cast<char>(i * 7 % 251);
  }
  Xxh3 hash;
  for (std::size_t at = 0, length = 0; at < text.size(); at += length) {
    length = std::min<std::size_t>(1 + at / 3, text.size() - at);
    hash.update(bytes_of(text).subspan(at, length));
  }
  REQUIRE(hash.digest() == xxh3(bytes_of(text)));
  text[5000] ^= 1;
  REQUIRE(hash.digest() != xxh3(bytes_of(text)));
}

TEST_CASE("SHA-256 gives the published values, in one piece or many") {
  Sha256 empty;
  REQUIRE(empty.hex_digest() == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  Sha256 abc;
  abc.update(bytes_of("a"));
  abc.update(bytes_of("bc"));
  REQUIRE(abc.hex_digest() == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST_CASE("CRC-32C gives the published values") {
  REQUIRE(crc32c(bytes_of("")) == 0);
  REQUIRE(crc32c(bytes_of("123456789")) == 0xe3069283U);
  REQUIRE(crc32c(bytes_of(std::string(32, '\0'))) == 0x8a9136aaU);  // RFC 3720, B.4
  REQUIRE(crc32c(bytes_of(std::string(32, '\xff'))) == 0x62a8ab43U);
}

TEST_CASE("hash texts have all their leading zeros") {
  REQUIRE(hex_text(0) == "0000000000000000");
  REQUIRE(hex_text(0x0123456789abcdefU) == "0123456789abcdef");
}

}  // namespace slackline
