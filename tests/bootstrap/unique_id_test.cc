// Unique ids: what check_unique_id() says of good and bad ones, and the hash behind them.
#include "bootstrap/unique_id.h"

#include <gtest/gtest.h>

#include "bootstrap/sha256.h"

namespace weft::bootstrap {
namespace {

UniqueId sample(const std::string& address = "10.1.2.3:4711") {
  return write_unique_id(*SocketAddress::parse(address), derive_secret("sample"));
}

void expect_invalid(const UniqueId& id, const std::string& part) {
  const Status status = check_unique_id(id);
  EXPECT_EQ(status.code(), Code::invalid_unique_id);
  EXPECT_NE(status.message().find(part), std::string::npos) << status.message();
}

std::string hex(const Digest& digest) {
  std::string out;
  for (const std::byte b : digest) out += fmt::format("{:02x}", std::to_integer<int>(b));
  return out;
}

TEST(Sha256, GivesTheStandardsExamples) {
  EXPECT_EQ(hex(sha256("")), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(hex(sha256("abc")), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(hex(sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq")),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(hex(sha256(std::string(1000, 'a'))),
            "41edece42d63e8d9bf515a9ba6932e1c20cbc9f5a5d134645adb5db1b9737ea3");
}

TEST(UniqueId, SaysWhatWasWritten) {
  for (const std::string address : {"10.1.2.3:4711", "[fd00::17]:65535"}) {
    Result<Job> job = read_unique_id(sample(address));
    ASSERT_TRUE(job.ok()) << job.status().message();
    EXPECT_EQ(job->root.to_string(), address);
    EXPECT_TRUE(equal_secrets(job->secret, derive_secret("sample")));
  }
}

TEST(UniqueId, AllZeroIsNamed) { expect_invalid(UniqueId{}, "all zero"); }

TEST(UniqueId, TruncationIsNamed) {
  for (const size_t kept : {5u, 40u, 64u, 119u}) {
    UniqueId id = sample();
    std::fill(id.bytes.begin() + static_cast<ptrdiff_t>(kept), id.bytes.end(), std::byte{0});
    expect_invalid(id, "truncated");
  }
}

TEST(UniqueId, EveryDamagedByteIsNoticed) {
  for (size_t at = 0; at < sizeof(UniqueId); ++at) {
    UniqueId id = sample();
    id.bytes[at] ^= std::byte{0x40};
    expect_invalid(id, at < 4 ? "WEFT" : at < 6 ? "version" : "damaged");
  }
}

TEST(UniqueId, WithoutAnAddressIsRefused) {
  expect_invalid(write_unique_id(*SocketAddress::parse("10.0.0.1:0"), Secret{}), "no address");
}

TEST(UniqueId, ForTheSameTextHasTheSameSecret) {
  Result<UniqueId> one = unique_id_for("127.0.0.1", 4711, "open sesame");
  Result<UniqueId> same = unique_id_for("127.0.0.1", 4711, "open sesame");
  Result<UniqueId> other = unique_id_for("127.0.0.1", 4711, "open barley");
  ASSERT_TRUE(one.ok() && same.ok() && other.ok());
  EXPECT_EQ(one->bytes, same->bytes);
  EXPECT_NE(one->bytes, other->bytes);
  EXPECT_EQ(unique_id_for("127.0.0.1", 0, "x").status().code(), Code::invalid_argument);
  EXPECT_EQ(unique_id_for("no such host.invalid", 1, "x").status().code(), Code::invalid_argument);
}

TEST(SocketAddress, ParsesWhatItPrintsAndRefusesTheRest) {
  for (const std::string text : {"1.2.3.4:5", "[::1]:80", "[fd00::ab:0:12]:65535"}) {
    Result<SocketAddress> address = SocketAddress::parse(text);
    ASSERT_TRUE(address.ok()) << text;
    EXPECT_EQ(address->to_string(), text);
  }
  for (const std::string text :
       {"", "1.2.3.4", "1.2.3.4:", "1.2.3.4:65536", "1.2.3:4", "host:4", ":4", "[::1]", "1.2.3.4:5x"}) {
    EXPECT_EQ(SocketAddress::parse(text).status().code(), Code::invalid_argument) << text;
  }
}

}  // namespace
}  // namespace weft::bootstrap
