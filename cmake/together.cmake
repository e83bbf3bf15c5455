# Tests are many small files, each of which takes longer to read its headers than to compile. So eight are compiled as one.
# Whoever edits tests builds quicker with -DWEFT_TOGETHER=OFF, which compiles each alone.
option(WEFT_TOGETHER "Compile eight files of tests at a time" ON)

# Files that are compiled alone, because they replace malloc. Where names of two files would clash, a file has a namespace of its own.
set(WEFT_ALONE api/allocation_test.cc loom/engine/allocation_test.cc)

# compile_together(target): for the directory that adds the target, when it has all its sources.
function(compile_together target)
  if(NOT WEFT_TOGETHER)
    return()
  endif()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 8)
  get_target_property(sources ${target} SOURCES)
  get_target_property(folder ${target} SOURCE_DIR)
  foreach(source ${sources})
    cmake_path(ABSOLUTE_PATH source BASE_DIRECTORY ${folder} NORMALIZE OUTPUT_VARIABLE path)
    cmake_path(RELATIVE_PATH path BASE_DIRECTORY ${PROJECT_SOURCE_DIR}/tests OUTPUT_VARIABLE name)
    if(name IN_LIST WEFT_ALONE OR NOT name MATCHES "_test[.]cc$")
      set_source_files_properties(${source} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
    endif()
  endforeach()
endfunction()
