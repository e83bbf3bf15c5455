// A library that is loaded as PyTorch's are, from a folder torch/lib: nothing of it is used.
extern "C" __attribute__((visibility("default"))) const int fake_torch = 1;
