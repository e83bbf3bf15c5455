// A tokenizer's files in a folder that may have those of another. Which files there are says which kind of
// tokenizer it is, so one that is left over would be opened instead of the new one.
//
// Thread safety: one process at a time for a folder.
#pragma once

#include <string>
#include <string_view>

#include "text/tokenizer.h"

namespace loom::text {

/// Afterwards open_tokenizer(folder) gives this tokenizer, whatever was there. New files are written beside
/// their places and moved there, and what only the other tokenizer had is removed last, so a failure never
/// leaves the folder without one. Errors: as Tokenizer::save().
Status replace_tokenizer(const Tokenizer& tokenizer, const std::string& folder);

/// The same with the files that another folder has of a tokenizer, as they are. Errors: not_found where it
/// has none, disk_full, system_error.
Status copy_tokenizer(const std::string& from, const std::string& folder);

/// Afterwards there is none. Errors: system_error.
Status remove_tokenizer(const std::string& folder);

/// Whether the above replace or remove files of that name.
bool is_tokenizer_file(std::string_view name);

}  // namespace loom::text
