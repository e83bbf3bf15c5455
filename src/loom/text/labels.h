// Labels: which number a text's label has. Where a model is beside the tokenizer, its classes are the
// numbers, since its head was trained for them; else the labels are numbered in order.
//
// Thread safety: pure functions; a Labels never changes after it is made.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/status.h"
#include "text/token_file.h"

namespace loom::text {

/// The classes that a model tells apart, in its order; no names where it does not classify.
struct ModelClasses {
  std::vector<std::string> names;
  std::string model;  // its folder, for sentences
};

/// Names for a sentence: the first ones, where there are very many.
std::string listed(const std::vector<std::string>& names);

/// "LABEL_0", "LABEL_1", …: what the classes of a model are called that gives them no names.
std::vector<std::string> unnamed_classes(int64_t count);

/// Whether labels are the classes of a model: by name, or as their numbers "0", "1", … in order, unless one
/// of these is the name of another class. Classes that the labels lack are no difference.
bool are_classes(const std::vector<std::string>& labels, const std::vector<std::string>& classes);

class Labels {
 public:
  /// `places` says of every label where it stands first, for sentences. With a model, labels are names or
  /// numbers of its classes; labels none of which is one are numbered by themselves, which note() says.
  /// Without, they are in order: whole numbers by value, if all are, and others by their bytes. Errors:
  /// invalid_argument for less than two classes, for labels of which only some are the model's, and for
  /// numbers that are names of other classes.
  static Result<Labels> make(const std::map<std::string, std::string>& places, const ModelClasses& classes);

  const std::vector<std::string>& names() const { return names_; }
  Token number(const std::string& label) const { return numbers_.at(label); }
  const std::string& note() const { return note_; }

 private:
  Status take_classes(const std::map<std::string, std::string>& places, const ModelClasses& classes);
  void take_own(const std::map<std::string, std::string>& places);

  std::vector<std::string> names_;
  std::map<std::string, Token> numbers_;
  std::string note_;
};

}  // namespace loom::text
