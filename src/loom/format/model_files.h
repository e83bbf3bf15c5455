// What Hugging Face calls the files of a model's folder.
#pragma once

namespace loom::format {

inline constexpr char kOneFile[] = "model.safetensors";
/// Of a model in several files: which tensor is in which.
inline constexpr char kIndex[] = "model.safetensors.index.json";
/// Weights that PyTorch alone reads, in one file or several with an index.
inline constexpr char kPickled[] = "pytorch_model.bin";
inline constexpr char kPickledIndex[] = "pytorch_model.bin.index.json";
/// Not a model: what a PEFT adapter adds to one.
inline constexpr char kAdapter[] = "adapter_model.safetensors";

}  // namespace loom::format
