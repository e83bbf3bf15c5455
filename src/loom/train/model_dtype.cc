#include "train/model_dtype.h"

namespace loom::train {
namespace {

struct Type {
  format::DType dtype;
  const char *setting, *name;  // of Loom, of PyTorch
};
constexpr Type kTypes[] = {{format::DType::f32, "fp32", "float32"},
                           {format::DType::bf16, "bf16", "bfloat16"},
                           {format::DType::f16, "fp16", "float16"}};
// Versions of `transformers` read one or the other.
constexpr const char* kKeys[] = {"dtype", "torch_dtype"};

}  // namespace

Result<format::DType> model_dtype(const std::string& setting, const format::Json& origin) {
  for (const Type& type : kTypes)
    if (setting == type.setting) return type.dtype;
  if (setting != "auto")
    return fail(Code::invalid_argument, "the type of a saved model is \"{}\", must be auto, fp32, bf16, fp16",
                setting);
  for (const char* key : kKeys)
    for (const Type& type : kTypes)
      if (origin.is_object() && origin.contains(key) && origin[key] == type.name) return type.dtype;
  return format::DType::f32;
}

void set_dtype(format::DType dtype, format::Json& config) {
  for (const Type& type : kTypes)
    for (const char* key : kKeys)
      if (dtype == type.dtype) config[key] = type.name;
}

void take_dtype(const format::Json& config, format::Json& origin) {
  for (const char* key : kKeys)
    if (config.is_object() && config.contains(key)) origin[key] = config[key];
}

}  // namespace loom::train
