# -DWEFT_FUZZ=ON: all sources are instrumented for clang's libFuzzer and checked by two sanitizers, and tests/fuzz makes one
# program of each target. `make fuzz` builds and runs them.
if(NOT CMAKE_CXX_COMPILER_ID STREQUAL Clang)
  message(FATAL_ERROR "WEFT_FUZZ needs clang: configure with -DCMAKE_C_COMPILER=clang -DCMAKE_CXX_COMPILER=clang++")
endif()
set(WEFT_SANITIZE address,undefined)
add_compile_options(-fsanitize=fuzzer-no-link)
# gcc's names of warnings.
add_compile_options(-Wno-unknown-warning-option)
