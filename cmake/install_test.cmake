# Installs the build into a fresh folder, moves it, and uses it from there as another project would: compiles every
# header alone, and configures, builds and runs examples/cpp and examples/c.
#
#   cmake -DSOURCE=<tree> -DBUILD=<build folder> -DWORK=<scratch folder> -DCONFIG=Release -DGENERATOR=Ninja
#         -DC=<compiler> -DCXX=<compiler> -P install_test.cmake
cmake_minimum_required(VERSION 3.25)

function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT result EQUAL 0)
    list(JOIN ARGN " " command)
    message(FATAL_ERROR "failed (${result}): ${command}\n${output}")
  endif()
  set(output "${output}" PARENT_SCOPE)
endfunction()

file(REMOVE_RECURSE ${WORK})
run(${CMAKE_COMMAND} --install ${BUILD} --config ${CONFIG} --prefix ${WORK}/elsewhere)
file(RENAME ${WORK}/elsewhere ${WORK}/prefix)

set(strict -fsyntax-only -Wall -Wextra -Wpedantic -Wconversion -Wshadow -Werror -I${WORK}/prefix/include)
file(GLOB_RECURSE headers RELATIVE ${WORK}/prefix/include ${WORK}/prefix/include/*.h)
list(LENGTH headers count)
if(count LESS 10 OR NOT "raggrad/raggrad.h" IN_LIST headers)
  message(FATAL_ERROR "only ${count} headers were installed: ${headers}")
endif()
foreach(header IN LISTS headers)
  set(languages ${CXX}|-std=c++20)
  if(header MATCHES "_c(_[a-z]+)?\\.h$")
    set(languages ${C}|-std=c11 ${CXX}|-std=c++11 ${CXX}|-std=c++20)
  endif()
  foreach(language IN LISTS languages)
    string(REPLACE "|" ";" compiler "${language}")
    string(MAKE_C_IDENTIFIER ${header} name)
    set(source ${WORK}/alone/${name}.cc)
    if(language MATCHES "-std=c11")
      set(source ${WORK}/alone/${name}.c)
    endif()
    file(WRITE ${source} "#include <${header}>\n")
    run(${compiler} ${strict} ${source})
  endforeach()
endforeach()

# Both ask for one language only: find_package must not need the other.
foreach(language cpp c)
  set(example ${WORK}/example_${language})
  run(${CMAKE_COMMAND} -S ${SOURCE}/examples/${language} -B ${example} -G ${GENERATOR}
      -DCMAKE_PREFIX_PATH=${WORK}/prefix -DCMAKE_FIND_USE_PACKAGE_REGISTRY=OFF -DCMAKE_BUILD_TYPE=${CONFIG}
      -DCMAKE_C_COMPILER=${C} -DCMAKE_CXX_COMPILER=${CXX})
  run(${CMAKE_COMMAND} --build ${example} --config ${CONFIG})
endforeach()
foreach(program pooling pooling_shared pooling_c pooling_c_shared)
  find_program(path_${program} ${program} PATHS ${WORK}/example_cpp ${WORK}/example_c PATH_SUFFIXES ${CONFIG}
               NO_DEFAULT_PATH REQUIRED)
  run(${path_${program}})
  if(NOT output STREQUAL "row 2: 0.5 1.0\nrow 7: 3.5 5.0\n")
    message(FATAL_ERROR "${program} printed:\n${output}")
  endif()
endforeach()
message("${count} headers compile alone; all programs of examples/cpp and examples/c run")
