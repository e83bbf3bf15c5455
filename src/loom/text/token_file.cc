#include "text/token_file.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <vector>

namespace loom::text {
namespace {

static_assert(std::endian::native == std::endian::little,
              "the format is little-endian, and so must be the machine");

constexpr char kMagic[8] = {'L', 'O', 'O', 'M', 'T', 'O', 'K', 'S'};
constexpr uint32_t kVersion = 1;

struct Header {
  char magic[8];
  uint32_t version;
  uint32_t width;
  uint64_t count;
  uint64_t vocabulary_size;
  uint64_t tokenizer_hash;
  uint64_t data_hash;
  uint64_t zero;
  uint64_t header_hash;
};
static_assert(sizeof(Header) == 64);

std::span<const std::byte> bytes_of(const Header& header) { return std::as_bytes(std::span(&header, 1)); }

uint64_t hash_of(const Header& header) {
  Hash64 hash;
  hash.add(bytes_of(header).first(offsetof(Header, header_hash)));
  return hash.value();
}

uint32_t width_for(int64_t vocabulary_size) { return vocabulary_size <= 65536 ? 2 : 4; }

/// Tokens are hashed in pieces of so many bytes, however they were written.
constexpr size_t kPiece = 64 * 1024;

Status check_header(const Header& header, uint64_t file_bytes, const std::string& path) {
  if (header.version != kVersion) {
    return fail(Code::unsupported, "{} is of version {}, this program reads version {}", path, header.version,
                kVersion);
  }
  if (header.header_hash != hash_of(header) || header.zero != 0) {
    return fail(Code::invalid_data, "{} is damaged: its header does not have its hash", path);
  }
  if (header.vocabulary_size < 1 || header.vocabulary_size > uint64_t{std::numeric_limits<Token>::max()} ||
      header.width != width_for(static_cast<int64_t>(header.vocabulary_size))) {
    return fail(Code::invalid_data, "{} has tokens of {} bytes for a vocabulary of {}, which cannot be", path,
                header.width, header.vocabulary_size);
  }
  const uint64_t data_bytes = file_bytes - sizeof(Header);
  if (data_bytes % header.width == 0 && header.count == data_bytes / header.width) return {};
  return fail(Code::invalid_data,
              "{} has {} bytes after its header, must have {} for {} tokens of {} bytes: {}", path,
              data_bytes, header.count * header.width, header.count, header.width,
              data_bytes / header.width < header.count ? "it was cut short" : "something was added");
}

/// Copies tokens of one width; the position of the first that is not in the vocabulary, or their number.
template <typename Stored>
size_t copy_tokens(const std::byte* from, int64_t vocabulary_size, std::span<Token> into) {
  for (size_t i = 0; i < into.size(); ++i) {
    Stored token;
    std::memcpy(&token, from + i * sizeof(Stored), sizeof(Stored));
    if (token >= vocabulary_size) return i;
    into[i] = static_cast<Token>(token);
  }
  return into.size();
}

}  // namespace

Result<TokenFile> TokenFile::open_listed(const std::string& path) {
  Result<TokenFile> file = open(path);
  if (file.status().code() == Code::not_found)
    return fail(Code::invalid_data, "a file of this dataset is gone: {}", file.status().message());
  return file;
}

Result<TokenFile> TokenFile::open(const std::string& path) {
  Result<MappedFile> mapped = MappedFile::open(path);
  if (!mapped.ok()) return mapped.status();
  TokenFile file;
  file.file_ = mapped.take();
  file.path_ = path;
  const std::span<const std::byte> bytes = file.file_.bytes();
  Header header;
  if (bytes.size() >= sizeof(header)) std::memcpy(&header, bytes.data(), sizeof(header));
  if (bytes.size() < sizeof(header) || std::memcmp(header.magic, kMagic, sizeof(kMagic)) != 0) {
    return fail(Code::invalid_data,
                "{} is no token file: it does not begin with LOOMTOKS and a header of {} bytes", path,
                sizeof(header));
  }
  LOOM_TRY(check_header(header, bytes.size(), path));
  file.width_ = header.width;
  file.count_ = header.count;
  file.vocabulary_size_ = static_cast<int64_t>(header.vocabulary_size);
  file.tokenizer_hash_ = header.tokenizer_hash;
  file.data_hash_ = header.data_hash;
  file.key_ = header.header_hash;
  return file;
}

Status TokenFile::read(uint64_t begin, std::span<Token> into) const {
  if (begin > count_ || into.size() > count_ - begin) {
    return fail(Code::invalid_argument, "tokens [{}, {}) of {}, which has {}", begin, begin + into.size(),
                path_, count_);
  }
  const std::byte* const from = file_.bytes().data() + sizeof(Header) + begin * width_;
  const size_t copied = width_ == 2 ? copy_tokens<uint16_t>(from, vocabulary_size_, into)
                                    : copy_tokens<uint32_t>(from, vocabulary_size_, into);
  if (copied == into.size()) return {};
  return fail(Code::invalid_data, "{} is damaged: token {} is not in the vocabulary of {}", path_,
              begin + copied, vocabulary_size_);
}

Status TokenFile::verify() const {
  std::span<const std::byte> data = file_.bytes().subspan(sizeof(Header));
  Hash64 hash;
  while (!data.empty()) {
    const size_t some = std::min(data.size(), kPiece);
    hash.add(data.first(some));
    data = data.subspan(some);
  }
  if (hash.value() == data_hash_) return {};
  return fail(Code::invalid_data, "{} is damaged: its tokens do not have the hash that its header says",
              path_);
}

TokenFileWriter::TokenFileWriter(AtomicFile file, int64_t vocabulary_size, uint64_t tokenizer_hash)
    : file_(std::move(file)), vocabulary_size_(vocabulary_size), tokenizer_hash_(tokenizer_hash) {}

Result<TokenFileWriter> TokenFileWriter::create(const std::string& path, int64_t vocabulary_size,
                                                uint64_t tokenizer_hash) {
  if (vocabulary_size < 1 || vocabulary_size > std::numeric_limits<Token>::max()) {
    return fail(Code::invalid_argument, "a vocabulary of {} tokens, must be in [1, 2^31)", vocabulary_size);
  }
  Result<AtomicFile> file = AtomicFile::create(path);
  if (!file.ok()) return file.status();
  return TokenFileWriter(file.take(), vocabulary_size, tokenizer_hash);
}

Status TokenFileWriter::append(std::span<const Token> tokens) {
  const uint32_t width = width_for(vocabulary_size_);
  for (const Token token : tokens) {
    if (token < 0 || token >= vocabulary_size_) {
      return fail(Code::invalid_argument, "token {} for {}, must be in [0, {})", token, file_.path(),
                  vocabulary_size_);
    }
    const uint32_t stored = static_cast<uint32_t>(token);
    const auto* const bytes = reinterpret_cast<const std::byte*>(&stored);
    pending_.insert(pending_.end(), bytes, bytes + width);
    if (pending_.size() == kPiece) LOOM_TRY(flush());
    ++count_;
  }
  return {};
}

Status TokenFileWriter::flush() {
  LOOM_TRY(file_.write_at(sizeof(Header) + written_bytes_, pending_));
  hash_.add(pending_);
  written_bytes_ += pending_.size();
  pending_.clear();
  return {};
}

Status TokenFileWriter::finish() {
  if (!pending_.empty()) LOOM_TRY(flush());
  Header header{};
  std::memcpy(header.magic, kMagic, sizeof(kMagic));
  header.version = kVersion;
  header.width = width_for(vocabulary_size_);
  header.count = count_;
  header.vocabulary_size = static_cast<uint64_t>(vocabulary_size_);
  header.tokenizer_hash = tokenizer_hash_;
  header.data_hash = hash_.value();
  header.header_hash = hash_of(header);
  LOOM_TRY(file_.write_at(0, bytes_of(header)));
  return file_.commit();
}

}  // namespace loom::text
