# Most files take longer to read their headers than to compile. So eight are compiled as one.
# Whoever edits builds quicker with -DWEFT_TOGETHER=OFF, which compiles each alone.
option(WEFT_TOGETHER "Compile eight files at a time" ON)

# Files that are compiled alone. Four tests replace malloc. The NCCL plugin takes a few files of device/ from an archive, and tests link
# broken copies of libfabric's. Each algorithm, family and objective says the same of itself, by the same names. The others have names
# in common with their neighbours; a test that has is in a namespace of its own instead.
set(WEFT_ALONE tests/api/allocation_test.cc tests/engine/stash_test.cc tests/loom/engine/allocation_test.cc
  tests/transport/tcp_allocation_test.cc
  src/weft/device/ src/weft/transport/ofi src/weft/plan/ src/loom/model/families/ src/loom/model/objectives/
  src/loom/device/cuda/ src/loom/program/partition_interleaved.cc src/loom/program/verify_steps.cc src/loom/text/bpe.cc
  src/loom/train/kernel_rates.cc src/loom/train/trace.cc)
list(JOIN WEFT_ALONE "|" WEFT_ALONE)
set(WEFT_JOINED "^(src|tools)/|^tests/(fabric/provider|fuzz/weft|fuzz/loom)/|_test[.]cc$")

# compile_together(target): for the directory that adds the target, when it has all its sources. What tests share is in no folder
# of WEFT_JOINED and compiled alone, and so are files with flags of their own. Where the target's UNITY_BUILD_MODE is GROUP, files
# of one folder are together.
function(compile_together target)
  if(NOT WEFT_TOGETHER)
    return()
  endif()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 8)
  get_target_property(sources ${target} SOURCES)
  get_target_property(folder ${target} SOURCE_DIR)
  foreach(source ${sources})
    cmake_path(ABSOLUTE_PATH source BASE_DIRECTORY ${folder} NORMALIZE OUTPUT_VARIABLE path)
    cmake_path(RELATIVE_PATH path BASE_DIRECTORY ${PROJECT_SOURCE_DIR} OUTPUT_VARIABLE name)
    if(name MATCHES "^(${WEFT_ALONE})" OR NOT name MATCHES "${WEFT_JOINED}")
      set_source_files_properties(${source} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
      continue()
    endif()
    cmake_path(GET name PARENT_PATH layer)
    string(MAKE_C_IDENTIFIER ${layer} layer)
    math(EXPR eight "0${${layer}} / 8")
    math(EXPR ${layer} "0${${layer}} + 1")
    set_source_files_properties(${source} PROPERTIES UNITY_GROUP ${layer}_${eight})
  endforeach()
endfunction()
