# Tests are many small files, each of which takes longer to read its headers than to compile. So eight are compiled as one.
# Whoever edits tests builds quicker with -DWEFT_TOGETHER=OFF, which compiles each alone.
option(WEFT_TOGETHER "Compile eight files of tests at a time" ON)

# Files that are compiled alone: they replace malloc, or have names in common with other files of their program.
set(WEFT_ALONE
    api/allocation_test.cc api/long_test.cc
    cuda/deferred_free_test.cc cuda/exposed_plan_test.cc cuda/gpu_direct_test.cc cuda/graph_failures_test.cc cuda/graph_kernels_test.cc
    cuda/graph_test.cc cuda/misuse_test.cc
    cuda/pending_release_test.cc cuda/plan_path_test.cc
    engine/peer_losses_test.cc
    loom/api/predictions_test.cc
    loom/cuda_kernels/attention_test.cc
    loom/engine/allocation_test.cc loom/engine/combinations_test.cc loom/engine/layouts_test.cc loom/engine/loss_scale_test.cc
    loom/engine/masked_test.cc loom/engine/pipeline_training_test.cc loom/engine/training_test.cc
    loom/interop/run_interop_test.cc
    loom/model/hostile_config_test.cc loom/model/split_test.cc
    loom/ops/ends_of_ranges_test.cc loom/ops/gradients_test.cc loom/ops/layer_norm_test.cc loom/ops/split_vocabulary_test.cc
    loom/program/program_test.cc
    model/workers_test.cc
    plan/plan_kernel_test.cc plan/plan_program_test.cc
    nccl_net/closing_order_test.cc nccl_net/gpu_file_test.cc nccl_net/gpu_freed_test.cc nccl_net/gpu_test.cc
    nccl_net/gpu_user_buffer_test.cc nccl_net/landing_test.cc nccl_net/many_processes_test.cc nccl_net/threads_test.cc
    nccl_net/unmapped_test.cc
    nccl_shim/newer_functions_test.cc nccl_shim/over_nccl_test.cc nccl_shim/over_weft_test.cc)

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
