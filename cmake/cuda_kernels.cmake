# The GPU kernels of device/cuda/reduce.cu and plan.cu, each compiled by nvcc into a fat binary that the library carries as data. Without
# nvcc the library is built all the same, and adds up GPU memory's contributions on the CPU. Nothing is linked with CUDA.
option(WEFT_CUDA "Build the GPU kernels, if nvcc is there" ON)
set(WEFT_GPU_GENERATIONS all CACHE STRING "GPUs that kernels are compiled for: all, or generations such as 75,90")
find_program(WEFT_NVCC nvcc HINTS ${CUDAToolkit_ROOT}/bin $ENV{CUDA_HOME}/bin /usr/local/cuda/bin)
if(NOT WEFT_CUDA OR NOT WEFT_NVCC)
  message(STATUS "GPU kernels: none (no nvcc, or WEFT_CUDA is OFF); reductions of GPU memory will be the CPU's")
  return()
endif()

execute_process(COMMAND ${WEFT_NVCC} --list-gpu-arch OUTPUT_VARIABLE known RESULT_VARIABLE failed ERROR_QUIET)
# Code for one generation runs on later devices of its generation (sm_80 on 8.6 and 8.9); the oldest is kept as PTX too, for
# what is younger than all of these. CUDA 13 no longer compiles for sm_70: an older toolkit adds it.
set(generations)
foreach(generation 70 75 80 90 100)
  if(known MATCHES "compute_${generation}\n")
    list(APPEND generations ${generation})
  endif()
endforeach()
if(failed OR NOT generations)
  message(STATUS "GPU kernels: none (${WEFT_NVCC} does not say what it compiles for)")
  return()
endif()
if(NOT WEFT_GPU_GENERATIONS STREQUAL "all")
  string(REPLACE "," ";" wanted "${WEFT_GPU_GENERATIONS}")
  list(REMOVE_DUPLICATES wanted)
  list(SORT wanted COMPARE NATURAL)
  foreach(generation ${wanted})
    if(NOT generation IN_LIST generations)
      message(FATAL_ERROR "WEFT_GPU_GENERATIONS is ${WEFT_GPU_GENERATIONS}: ${generation} is not among ${generations}, which "
                          "${WEFT_NVCC} and the kernels have")
    endif()
  endforeach()
  set(generations ${wanted})
endif()
list(GET generations 0 oldest)
set_property(GLOBAL PROPERTY WEFT_OLDEST_GPU ${oldest})  # for other programs of nvcc's: its PTX runs on all that are younger
set_property(GLOBAL PROPERTY WEFT_GPU_GENERATIONS ${generations})
set(targets -gencode arch=compute_${oldest},code=compute_${oldest})
foreach(generation ${generations})
  list(APPEND targets -gencode arch=compute_${generation},code=sm_${generation})
endforeach()
list(JOIN generations " sm_" names)
message(STATUS "GPU kernels: sm_${names}, and PTX for younger ones, by ${WEFT_NVCC}")

# No multiplication and addition is fused: the bits are those of the CPU. Compressed, since kernels of several generations are much
# alike: 4 MB in place of 22 in every program that has the library.
set(definitions)
foreach(name reduce plan)
  set(source ${CMAKE_CURRENT_SOURCE_DIR}/device/cuda/${name}.cu)
  set(image ${CMAKE_CURRENT_BINARY_DIR}/${name}.fatbin)
  set(headers ${CMAKE_CURRENT_SOURCE_DIR}/device/cuda/reduce_range.h ${CMAKE_CURRENT_SOURCE_DIR}/device/float_format.h)
  if(name STREQUAL plan)
    list(APPEND headers ${CMAKE_CURRENT_SOURCE_DIR}/device/cuda/plan_kernel.h ${CMAKE_CURRENT_SOURCE_DIR}/device/cuda/plan_block.h
                        ${CMAKE_CURRENT_SOURCE_DIR}/device/cuda/plan_program.h)
  endif()
  add_custom_command(
    OUTPUT ${image}
    COMMAND ${WEFT_NVCC} -std=c++17 -fatbin --fmad=false -Xfatbin -compress-all ${targets} -I${CMAKE_CURRENT_SOURCE_DIR} ${source} -o ${image}
    DEPENDS ${source} ${headers}
    COMMENT "GPU kernels: ${name}.cu (a minute or two)" VERBATIM)
  string(TOUPPER ${name} upper)
  list(APPEND definitions "WEFT_${upper}_IMAGE=\"${image}\"")
  list(APPEND images ${image})
endforeach()
set_property(GLOBAL PROPERTY WEFT_KERNEL_IMAGES ${images})
set_source_files_properties(device/cuda/kernel_image.cc PROPERTIES COMPILE_DEFINITIONS "${definitions}" OBJECT_DEPENDS "${images}")
