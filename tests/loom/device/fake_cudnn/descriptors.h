// The fake cuDNN's descriptors: attributes by number, and which of them each kind of descriptor has.
//
// Thread safety: one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "device/cuda/cudnn.h"

namespace fake_dnn {

using namespace loom::cuda;

/// Keeps a sentence for cudnnGetLastErrorString, and returns the status.
int refuse(int status, const std::string& why);
const std::string& last_refusal();

struct Descriptor {
  struct Value {
    int type = 0;
    int64_t count = 0;
    std::vector<std::byte> bytes;
  };

  explicit Descriptor(int kind) : kind(kind) {}
  const int kind;
  bool finalized = false;
  std::map<int, Value> values;
  int64_t number = 0;  // of an engine's config: which; of a plan: its program

  bool has(int attribute) const { return values.contains(attribute); }
  template <typename T>
  std::vector<T> all(int attribute) const {
    std::vector<T> list;
    if (const auto found = values.find(attribute); found != values.end()) {
      list.resize(found->second.bytes.size() / sizeof(T));
      std::memcpy(list.data(), found->second.bytes.data(), list.size() * sizeof(T));
    }
    return list;
  }
  template <typename T>
  T get(int attribute, T otherwise = {}) const {
    return has(attribute) ? all<T>(attribute).front() : otherwise;
  }
  const Descriptor* at(int attribute) const { return get<Descriptor*>(attribute, nullptr); }
  bool is_set(int attribute) const { return get<uint8_t>(attribute, 0) != 0; }
};

/// Whether there are descriptors of that kind.
bool is_known(int kind);
/// Sets an attribute as the library would: not of what is finalized, none that the kind has not, of its type,
/// and of descriptors only finalized ones.
int set(Descriptor& descriptor, int attribute, int type, int64_t count, const void* values);
/// Whether all is there that must be.
int check_complete(const Descriptor& descriptor);

}  // namespace fake_dnn
