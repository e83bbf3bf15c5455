#include "text/delimited.h"

#include <algorithm>

namespace loom::text {

bool DelimitedReader::at_end_of_field() const {
  if (at_ >= text_.size() || text_[at_] == separator_ || text_[at_] == '\n') return true;
  return text_[at_] == '\r' && (at_ + 1 == text_.size() || text_[at_ + 1] == '\n');
}

/// From behind the opening quotation mark to behind the closing one.
Status DelimitedReader::read_quoted(int64_t line, std::string& field) {
  for (; at_ < text_.size(); ++at_) {
    if (text_[at_] == '\n') ++line_;
    if (text_[at_] != '"') {
      field += text_[at_];
    } else if (at_ + 1 < text_.size() && text_[at_ + 1] == '"') {
      field += text_[++at_];
    } else {
      ++at_;
      if (at_end_of_field()) return {};
      return fail(Code::invalid_data,
                  "line {}: a quotation mark closes a field that goes on: one inside of a field must be "
                  "doubled, in a "
                  "field that begins and ends with one",
                  line_);
    }
  }
  return fail(Code::invalid_data,
              "line {}: a field begins with a quotation mark that nothing closes: such a field must end with "
              "one, and "
              "one inside of it must be doubled",
              line);
}

Result<std::optional<Record>> DelimitedReader::next() {
  while (at_ < text_.size()) {
    Record record;
    record.line = line_;
    bool quoted = false;
    for (bool more = true; more;) {
      std::string& field = record.fields.emplace_back();
      if (at_ < text_.size() && text_[at_] == '"') {
        quoted = true;
        ++at_;
        LOOM_TRY(read_quoted(line_, field));
      } else {
        for (; !at_end_of_field(); ++at_) field += text_[at_];
      }
      more = at_ < text_.size() && text_[at_] == separator_;
      if (more) ++at_;
    }
    if (at_ < text_.size() && text_[at_] == '\r') ++at_;
    if (at_ < text_.size()) ++at_, ++line_;
    if (quoted || record.fields.size() > 1 || !record.fields.front().empty())
      return std::optional(std::move(record));
  }
  return std::optional<Record>();
}

}  // namespace loom::text
