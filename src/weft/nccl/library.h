// Library: the NCCL of this machine, found and opened at run time. Nothing of Weft links NCCL.
//
// If WEFT_NCCL_LIBRARY names a file, only that file counts. Otherwise the search goes on in this order:
// libnccl.so.2 as the dynamic linker finds it, the folders of LD_LIBRARY_PATH, a PyTorch that the process
// has loaded, the folders of installers. It passes over Weft's own libnccl.so.2 (plugins/nccl_shim).
//
// Thread safety: all functions. What is opened stays open.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "nccl/abi.h"

namespace weft::nccl {

/// A function of NCCL each, null where this NCCL is too old to have it.
struct Functions {
#define WEFT_NCCL_MEMBER(name, returns, parameters) returns(*name) parameters = nullptr;
  WEFT_NCCL_FUNCTIONS(WEFT_NCCL_MEMBER)
#undef WEFT_NCCL_MEMBER
};

class Library {
 public:
  /// The process's NCCL, looked for at the first call. Errors: unsupported (there is none, or one of another
  /// major version), invalid_setting (WEFT_NCCL_LIBRARY names none); the sentence says where was looked.
  static const Result<const Library*>& get();
  /// Opens and checks one file; for get() and tests. Errors: invalid_argument (it is Weft's shim),
  /// unsupported.
  static Result<const Library*> open(const std::string& file);
  /// Where get() looks without WEFT_NCCL_LIBRARY, in this order; the first is a bare name, for the dynamic
  /// linker.
  static std::vector<std::string> candidates();
  /// The first of them that is an NCCL. Errors: unsupported, with what was wrong with the last that was
  /// there.
  static Result<const Library*> find_among(const std::vector<std::string>& files);

  const Functions& functions() const { return functions_; }
  const std::string& path() const { return path_; }
  int version_code() const { return version_code_; }
  std::string version() const;

  /// An error unless NCCL returned success: it quotes NCCL. `what` names the call.
  Status check(int result, const char* what, Comm_t comm) const;
  /// An error where this NCCL has no function `name`.
  template <typename Function>
  Status has(Function* function, const char* name) const {
    return function ? Status() : lacks(name);
  }

 private:
  Library() = default;
  Status lacks(const char* name) const;

  Functions functions_;
  std::string path_;
  int version_code_ = 0;
};

/// "2.28.9" of 22809, "2.8.4" of 2804.
std::string version_text(int code);
/// The symbol by which Weft's own libnccl.so.2 can be told from NCCL's.
inline constexpr const char* kShimMark = "weftNcclShim";
/// NCCL's code for one of Weft's, which are more exact: 0 to 7 are the same.
int nccl_code(Code code);

}  // namespace weft::nccl
