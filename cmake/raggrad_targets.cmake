# The targets that the folders add to, and the functions they use for it.
find_package(Threads REQUIRED)

# Flags of everything we compile. Exact results need -ffp-contract=off: with fused multiply-add, aarch64 differs from
# TensorFlow by one unit in the last place.
add_library(raggrad_flags INTERFACE)
target_include_directories(raggrad_flags INTERFACE ${PROJECT_SOURCE_DIR})
target_link_libraries(raggrad_flags INTERFACE Threads::Threads)
target_compile_options(
  raggrad_flags
  INTERFACE $<$<COMPILE_LANGUAGE:C,CXX>:-Wall -Wextra -Wshadow $<$<BOOL:${RAGGRAD_WERROR}>:-Werror>>
            $<$<COMPILE_LANGUAGE:CXX>:-Wconversion -ffp-contract=off>)
# g++ 12 takes "text" + string for an overlapping copy (GCC bug 105651).
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  target_compile_options(raggrad_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-restrict>)
endif()
if(RAGGRAD_SANITIZE)
  target_compile_options(raggrad_flags INTERFACE -fsanitize=${RAGGRAD_SANITIZE} -fno-sanitize-recover=all
                                                 -fno-omit-frame-pointer -g1)
  target_link_options(raggrad_flags INTERFACE -fsanitize=${RAGGRAD_SANITIZE})
  target_compile_definitions(raggrad_flags INTERFACE RAGGRAD_SANITIZED)
  # On aarch64 clang's other instruction selector takes half of the time without optimisation: 9 s for grad_cpu.cc of
  # sparse_segment instead of 16 (clang 14). Elsewhere it is the usual one.
  target_compile_options(raggrad_flags INTERFACE $<$<CXX_COMPILER_ID:Clang>:-fno-global-isel>)
endif()

# Flags of code that fuzzers run. It reports which branches it takes, which steers the search. It does not report the
# values it compares: that would take half of the time and only help to guess magic numbers, of which there are none.
add_library(raggrad_library_flags INTERFACE)
target_link_libraries(raggrad_library_flags INTERFACE raggrad_flags)
if(RAGGRAD_BUILD_FUZZERS)
  if(NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    message(FATAL_ERROR "RAGGRAD_BUILD_FUZZERS needs clang: libFuzzer comes with it (cmake --preset asan)")
  endif()
  target_compile_options(raggrad_library_flags INTERFACE -fsanitize=fuzzer-no-link -fno-sanitize-coverage=trace-cmp)
  add_custom_target(fuzzers)
endif()
if(RAGGRAD_BUILD_BENCHMARKS)
  find_package(benchmark)
  if(NOT benchmark_FOUND AND NOT RAGGRAD_WITH_CUDA)
    message(FATAL_ERROR "RAGGRAD_BUILD_BENCHMARKS needs Google Benchmark (libbenchmark-dev)")
  elseif(NOT benchmark_FOUND)
    message(STATUS "No Google Benchmark: of the benchmarks only gpu_bench is built")
  endif()
endif()

# The library's objects, compiled once for the static and the shared library.
add_library(raggrad_objects OBJECT)
target_link_libraries(raggrad_objects PRIVATE raggrad_library_flags)
# For one file alone: otherwise a new version would compile all of them again.
set_source_files_properties(
  ${PROJECT_SOURCE_DIR}/raggrad/core/version.cc TARGET_DIRECTORY raggrad_objects
  PROPERTIES COMPILE_DEFINITIONS RAGGRAD_VERSION="${PROJECT_VERSION}")

# One object library per instruction-set level (core/isa.h). Sources that raggrad_isa_sources() names are compiled for
# each of them, with RAGGRAD_TARGET_ISA naming the level.
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  set(RAGGRAD_ISA_LEVELS kX86V1 kX86V3 kX86V4)
  set(RAGGRAD_MARCH_kX86V1 x86-64)
  set(RAGGRAD_MARCH_kX86V3 x86-64-v3)
  set(RAGGRAD_MARCH_kX86V4 x86-64-v4)
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
  set(RAGGRAD_ISA_LEVELS kArmV8)
  set(RAGGRAD_MARCH_kArmV8 armv8-a)
else()
  message(FATAL_ERROR "raggrad is built for x86-64 and aarch64, not for ${CMAKE_SYSTEM_PROCESSOR}")
endif()
# ThreadSanitizer looks at what threads share, which is the same on every level.
if(RAGGRAD_SANITIZE STREQUAL thread)
  list(GET RAGGRAD_ISA_LEVELS 0 RAGGRAD_ISA_LEVELS)
  target_compile_definitions(raggrad_flags INTERFACE RAGGRAD_BASELINE_ONLY)
endif()
# Row loops are optimised in every build, since tests spend their time there. All levels have one source, so
# UndefinedBehaviorSanitizer checks the first level only: clang takes 22 s for pool_reproducible.cc with it, 7 without.
# AddressSanitizer checks every access on every level. The option is linked as a library because a target's own options
# come first, and raggrad_flags would undo it.
add_library(raggrad_checked_on_first_level INTERFACE)
if(RAGGRAD_SANITIZE MATCHES "undefined")
  target_compile_options(raggrad_checked_on_first_level INTERFACE -fno-sanitize=undefined)
endif()
foreach(level IN LISTS RAGGRAD_ISA_LEVELS)
  add_library(raggrad_isa_${level} OBJECT)
  target_link_libraries(raggrad_isa_${level} PRIVATE raggrad_library_flags)
  # -fno-math-errno: square roots become instructions. -fno-schedule-insns: on aarch64 g++ would move all loads of a
  # strip of columns to its front, and then run out of registers (sums of kReproducible took 1.3 times as long).
  target_compile_options(raggrad_isa_${level} PRIVATE -march=${RAGGRAD_MARCH_${level}} -fno-math-errno
                                                      $<$<CONFIG:Release>:-O3>
                                                      $<$<CXX_COMPILER_ID:GNU>:-fno-schedule-insns>)
  if(RAGGRAD_SANITIZE)
    target_compile_options(raggrad_isa_${level} PRIVATE -O1)
  endif()
  if(RAGGRAD_ISA_OBJECTS)
    target_link_libraries(raggrad_isa_${level} PRIVATE raggrad_flags raggrad_checked_on_first_level)
  elseif(RAGGRAD_SANITIZE)
    # Copies multiply what sanitizers add: clang takes 27 s instead of 68 for sum_reproducible.cc if it may choose.
    # On the first level it may: all code runs on that level, so the linker can take any copy of a function.
    target_compile_definitions(raggrad_isa_${level} PRIVATE always_inline=unused)
  endif()
  target_compile_definitions(raggrad_isa_${level} PRIVATE RAGGRAD_TARGET_ISA=raggrad::Isa::${level})
  list(APPEND RAGGRAD_ISA_OBJECTS $<TARGET_OBJECTS:raggrad_isa_${level}>)
endforeach()

# The kernels for GPUs, in a library of their own that is loaded when it is first needed. It has its own copy of the
# functions of raggrad that it calls, and of the CUDA runtime.
if(RAGGRAD_WITH_CUDA)
  add_library(raggrad_cuda SHARED)
  target_link_libraries(raggrad_cuda PRIVATE raggrad raggrad_flags)
  target_link_options(raggrad_cuda PRIVATE -Wl,--exclude-libs,ALL -Wl,-Bsymbolic -Wl,--no-undefined)
  # The first four options do for exact results what -ffp-contract=off and flushing do on the CPU. Warning 2810 is
  # wrong: nvcc takes the assignment of a [[nodiscard]] class for a discarded value.
  target_compile_options(
    raggrad_cuda PRIVATE -fmad=false -ftz=true -prec-div=true -prec-sqrt=true --extended-lambda
                         --expt-relaxed-constexpr -Xcompiler=-fvisibility=hidden -diag-suppress=2810
                         $<$<BOOL:${RAGGRAD_WERROR}>:-Werror=all-warnings>)

  # Objects that the tests call without the loader.
  add_library(raggrad_cuda_parts OBJECT)
  target_link_libraries(raggrad_cuda_parts PRIVATE raggrad raggrad_flags)
  target_compile_options(raggrad_cuda_parts PRIVATE $<TARGET_PROPERTY:raggrad_cuda,COMPILE_OPTIONS>)
  target_sources(raggrad_cuda PRIVATE $<TARGET_OBJECTS:raggrad_cuda_parts>)
endif()

# nvcc would name what a file keeps to itself after a process: two builds would differ.
function(add_cuda_sources target)
  if(RAGGRAD_WITH_CUDA)
    foreach(file IN LISTS ARGN)
      set(source ${CMAKE_CURRENT_SOURCE_DIR}/${file})
      file(RELATIVE_PATH seed ${PROJECT_SOURCE_DIR} ${source})
      target_sources(${target} PRIVATE ${source})
      set_source_files_properties(${source} TARGET_DIRECTORY ${target} PROPERTIES COMPILE_OPTIONS -frandom-seed=${seed})
    endforeach()
  endif()
endfunction()

function(raggrad_cuda_parts)
  add_cuda_sources(raggrad_cuda_parts ${ARGN})
endfunction()

function(raggrad_cuda_sources)
  add_cuda_sources(raggrad_cuda ${ARGN})
endfunction()

function(raggrad_sources)
  list(TRANSFORM ARGN PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/)
  target_sources(raggrad_objects PRIVATE ${ARGN})
endfunction()

function(raggrad_isa_sources)
  list(TRANSFORM ARGN PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/)
  foreach(level IN LISTS RAGGRAD_ISA_LEVELS)
    target_sources(raggrad_isa_${level} PRIVATE ${ARGN})
  endforeach()
endfunction()

# Headers that users include, installed under the path they have in the tree.
function(raggrad_headers)
  file(RELATIVE_PATH folder ${PROJECT_SOURCE_DIR} ${CMAKE_CURRENT_SOURCE_DIR})
  install(FILES ${ARGN} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/${folder})
endfunction()

# ThreadSanitizer runs the tests in which threads meet: executors, batching, plans, and every operator with 2 and 7
# threads (float_environment_ops_test). The other tests add only types and sizes, at 10 times the time.
set(RAGGRAD_THREAD_TESTS "allocator|batch|cancellation|deadline_timer|float_environment_ops|fork|indexed_slices|memory_budget")
string(APPEND RAGGRAD_THREAD_TESTS "|executor|radix_sort|relay|segment_plan")

# Headers that most tests include, compiled once: batching_values_test takes 15 s instead of 17 (g++ 12).
set(RAGGRAD_TEST_HEADERS <gmock/gmock.h> <gtest/gtest.h> <algorithm> <atomic> <cmath> <functional> <map> <memory>
                         <optional> <random> <span> <string> <thread> <vector>)

# AddressSanitizer watches the library in these tests, not their own references, which would take most of the time:
# sparse_slice_grad_test compiles in 34 s instead of 18 and runs 4 s instead of 62. Without optimisation clang compiles
# them in a third of the time and less, and they run little longer: sparse_segment_weights_test compiles in 8 s instead
# of 35 and runs 15 s both times, sparse_segment_grad_test compiles in 7 s instead of 21 and runs 29 s instead of 24.
set(RAGGRAD_LONG_TESTS
    float_environment_ops golden indexed_slices ragged_variant_forward ragged_variant_from_variant ragged_variant_grad
    segment_order segment_plan segments sparse_fill_empty_rows_ascending sparse_fill_empty_rows_forward
    sparse_fill_empty_rows_padded sparse_fill_empty_rows_reproducible sparse_segment_forward
    sparse_segment_forward_reproducible sparse_segment_grad sparse_segment_padded sparse_segment_reproducible
    sparse_segment_weights sparse_segment_weights_grad sparse_segment_weights_reproducible sparse_slice_forward
    sparse_slice_grad sparse_slice_grad_guess sparse_slice_padded stopping)
list(TRANSFORM RAGGRAD_LONG_TESTS APPEND _test)
set(RAGGRAD_OPTIMIZED_LONG_TESTS "sparse_slice_grad_guess|ragged_variant")  # 6 s to compile; else they run 10 s longer
add_library(raggrad_long_test_flags INTERFACE)
set(RAGGRAD_LONG_TEST_OPTIMIZATION -O1)
if(RAGGRAD_SANITIZE MATCHES "address")
  target_compile_options(raggrad_long_test_flags INTERFACE -fno-sanitize=all)
  set(RAGGRAD_LONG_TEST_OPTIMIZATION -O0)
endif()

# Lets a test use the headers that were precompiled for the first one of its kind.
function(raggrad_precompiled_headers name kind)
  get_property(first GLOBAL PROPERTY RAGGRAD_FIRST_${kind}_TEST)
  if(first)
    target_precompile_headers(${name} REUSE_FROM ${first})
  else()
    target_precompile_headers(${name} PRIVATE ${RAGGRAD_TEST_HEADERS})
    set_property(GLOBAL PROPERTY RAGGRAD_FIRST_${kind}_TEST ${name})
  endif()
endfunction()

# GoogleTest programs, one for each test/NAME.cc. Most of them run in a second and are compiled without optimisation, in
# 60 % of the time that -O1 takes. The long ones compute references of their own and need it where g++ compiles them.
function(raggrad_tests)
  if(NOT RAGGRAD_BUILD_TESTS)
    return()
  endif()
  foreach(name IN LISTS ARGN)
    if(RAGGRAD_SANITIZE AND name MATCHES "_cuda_test$")
      continue()  # sanitized builds have no kernels
    endif()
    set(optional)
    if(RAGGRAD_SANITIZE STREQUAL thread AND NOT name MATCHES "${RAGGRAD_THREAD_TESTS}")
      set(optional EXCLUDE_FROM_ALL)
    endif()
    add_executable(${name} ${optional} test/${name}.cc)
    target_link_libraries(${name} PRIVATE raggrad raggrad_flags raggrad_testing GTest::gmock GTest::gtest_main)
    if(name IN_LIST RAGGRAD_LONG_TESTS)
      if(name MATCHES "${RAGGRAD_OPTIMIZED_LONG_TESTS}")
        target_compile_options(${name} PRIVATE -O1)
      else()
        target_compile_options(${name} PRIVATE ${RAGGRAD_LONG_TEST_OPTIMIZATION})
      endif()
      target_link_libraries(${name} PRIVATE raggrad_long_test_flags)
    else()
      target_compile_options(${name} PRIVATE -O0)
    endif()
    # Precompiled headers fit one set of flags.
    if(NOT name IN_LIST RAGGRAD_LONG_TESTS)
      raggrad_precompiled_headers(${name} short)
    elseif(NOT name MATCHES "${RAGGRAD_OPTIMIZED_LONG_TESTS}")
      raggrad_precompiled_headers(${name} long)
    endif()
    if(NOT optional)
      add_test(NAME ${name} COMMAND ${name})
      if(name IN_LIST RAGGRAD_LONG_TESTS)  # they start first, so that none of them runs alone at the end
        set_tests_properties(${name} PROPERTIES COST 100)
      endif()
      if(name MATCHES "cuda_test$")
        raggrad_gpu_test(${name})
      endif()
    endif()
  endforeach()
endfunction()

# A Google Benchmark program, test/FAMILY_bench.cc, in the folder benchmarks/ of the build.
function(raggrad_benchmark family)
  if(RAGGRAD_BUILD_BENCHMARKS AND benchmark_FOUND)
    add_executable(${family}_bench test/${family}_bench.cc)
    target_link_libraries(${family}_bench PRIVATE raggrad raggrad_flags benchmark::benchmark)
    set_target_properties(${family}_bench PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/benchmarks)
  endif()
endfunction()

# A libFuzzer program, test/FAMILY_fuzz.cc, in the folder fuzz/ of the build. fuzz/run.sh runs all of them.
function(raggrad_fuzzer family)
  if(RAGGRAD_BUILD_FUZZERS)
    add_executable(${family}_fuzz test/${family}_fuzz.cc)
    target_link_libraries(${family}_fuzz PRIVATE raggrad raggrad_library_flags raggrad_testing_data)
    target_link_options(${family}_fuzz PRIVATE -fsanitize=fuzzer)
    set_target_properties(${family}_fuzz PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/fuzz)
    add_dependencies(fuzzers ${family}_fuzz)
  endif()
endfunction()

# A GoogleTest program for parts of the CUDA library that it does not export. It calls CUDA's runtime.
function(raggrad_cuda_parts_test name)
  if(RAGGRAD_BUILD_TESTS)
    add_executable(${name} ${ARGN} $<TARGET_OBJECTS:raggrad_cuda_parts>)
    target_include_directories(${name} SYSTEM PRIVATE ${CMAKE_CUDA_TOOLKIT_INCLUDE_DIRECTORIES})
    target_compile_options(${name} PRIVATE $<$<AND:$<CONFIG:Release>,$<COMPILE_LANGUAGE:CXX>>:-O1>)
    target_link_libraries(${name} PRIVATE raggrad raggrad_flags GTest::gmock GTest::gtest_main)
    add_test(NAME ${name} COMMAND ${name})
    raggrad_gpu_test(${name})
  endif()
endfunction()

# Marks a test that needs a GPU, and tells it where the kernels are. Other tests get no kernels: some of them pass host
# pointers off as device memory.
function(raggrad_gpu_test name)
  set_tests_properties(${name} PROPERTIES LABELS gpu)
  if(RAGGRAD_WITH_CUDA)
    set_property(TEST ${name} APPEND PROPERTY ENVIRONMENT RAGGRAD_CUDA_LIBRARY=$<TARGET_FILE:raggrad_cuda>)
  endif()
endfunction()
