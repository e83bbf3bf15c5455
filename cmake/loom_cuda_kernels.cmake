# The GPU kernels of src/loom/device/cuda/kernels/*.cu, each file compiled by nvcc into a fat binary that the library carries as data
# (kernel_images.cc), by the rules of cuda_kernels.cmake: without nvcc, or with WEFT_CUDA=OFF, there are none.
file(GLOB loom_kernels CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/device/cuda/kernels/*.cu)
get_property(generations GLOBAL PROPERTY WEFT_GPU_GENERATIONS)
list(FILTER generations EXCLUDE REGEX "^70$")  # kernels are written for sm_75 and later
set(carried "// Written by cmake/loom_cuda_kernels.cmake.\n")
if(generations)
  # PTX for devices that are younger than all of these: of the oldest, and of 80, since kernels for sm_75 take slower paths.
  list(GET generations 0 oldest)
  set(targets -gencode arch=compute_${oldest},code=compute_${oldest})
  if(80 IN_LIST generations AND NOT oldest EQUAL 80)
    list(APPEND targets -gencode arch=compute_80,code=compute_80)
  endif()
  foreach(generation ${generations})
    list(APPEND targets -gencode arch=compute_${generation},code=sm_${generation})
  endforeach()
  foreach(source ${loom_kernels})
    cmake_path(GET source STEM name)
    set(image ${CMAKE_CURRENT_BINARY_DIR}/kernels/${name}.fatbin)
    file(MAKE_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/kernels)
    set(fused true)
    if(name STREQUAL normal)
      set(fused false)  # the CPU's bits
    endif()
    # What ptxas says of registers stands beside the image, for a test.
    add_custom_command(
      OUTPUT ${image}
      COMMAND sh -c "\"$@\" > '${image}.log' 2>&1 || { cat '${image}.log'; exit 1; }" sh
              ${WEFT_NVCC} -std=c++20 --expt-relaxed-constexpr --fmad=${fused} -Xptxas -v -fatbin -Xfatbin -compress-all ${targets}
              -I${CMAKE_CURRENT_SOURCE_DIR} -MD -MF ${image}.d ${source} -o ${image}
      DEPENDS ${source}
      DEPFILE ${image}.d
      COMMENT "GPU kernels of Loom: ${name}.cu" VERBATIM)
    string(APPEND carried "LOOM_CARRY(${name}, \"${image}\")\n")
    list(APPEND loom_images ${image})
  endforeach()
endif()
file(CONFIGURE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/kernels/carried.h CONTENT "${carried}" @ONLY)
set_property(GLOBAL PROPERTY LOOM_KERNEL_IMAGES ${loom_images})
set_source_files_properties(device/cuda/kernels/kernel_images.cc PROPERTIES OBJECT_DEPENDS "${loom_images}"
                            INCLUDE_DIRECTORIES ${CMAKE_CURRENT_BINARY_DIR}/kernels)
