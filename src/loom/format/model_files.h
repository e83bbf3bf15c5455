// What Hugging Face calls the files of a model's folder.
#pragma once

namespace loom::format {

inline constexpr char kOneFile[] = "model.safetensors";
/// Of a model in several files: which tensor is in which.
inline constexpr char kIndex[] = "model.safetensors.index.json";

}  // namespace loom::format
