# `cmake --install`: program, libraries, headers, weft.pc, weftConfig.cmake, man page, completion.
include(CMakePackageConfigHelpers)
set(package ${CMAKE_INSTALL_LIBDIR}/cmake/weft)

# The man page and the completion come from the tables in src/cli.
set(formats man bash)
set(pages weft.1 weft.bash)
foreach(page IN ZIP_LISTS formats pages)
    add_custom_command(OUTPUT ${page_1} DEPENDS weft VERBATIM
        COMMAND $<TARGET_FILE:weft> help --${page_0} > ${page_1}.tmp
        COMMAND ${CMAKE_COMMAND} -E rename ${page_1}.tmp ${page_1})
endforeach()
add_custom_target(manual ALL DEPENDS weft.1 weft.bash)

install(TARGETS weft)
install(TARGETS weft_shared EXPORT weftSharedTargets)
install(TARGETS weft_static EXPORT weftStaticTargets)
install(FILES ${PROJECT_BINARY_DIR}/weft.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
install(FILES ${PROJECT_BINARY_DIR}/weft.bash RENAME weft
    DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)

# ---- headers ------------------------------------------------------------------------------------
# The public headers only; they include each other and the C library.
file(GLOB headers CONFIGURE_DEPENDS include/weft/*.h)
install(FILES ${headers} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/weft)

# ---- CMake package ------------------------------------------------------------------------------
foreach(kind Shared Static)
    install(EXPORT weft${kind}Targets NAMESPACE weft:: DESTINATION ${package})
endforeach()
configure_package_config_file(cmake/weftConfig.cmake.in weftConfig.cmake
    INSTALL_DESTINATION ${package} NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file(weftConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/weftConfig.cmake ${PROJECT_BINARY_DIR}/weftConfigVersion.cmake
    DESTINATION ${package})
install(FILES cmake/dependencies.cmake DESTINATION ${package} RENAME weftDependencies.cmake)

# ---- weft.pc: the shared library; weft-static.pc: the static one --------------------------------
# They are written at installation, because --prefix may name another folder.
get_filename_component(blas_folder "${WEFT_BLAS_LIBRARY}" DIRECTORY)
get_filename_component(dnnl_folder "${WEFT_DNNL_LIBRARY}" DIRECTORY)
set(WEFT_PC_LIBRARIES -fopenmp -L${blas_folder} -lopenblas -L${dnnl_folder} -ldnnl
    ${WEFT_PKG_LDFLAGS} ${MPI_C_LIBRARIES} -ldl -lpthread -lm)
if(CMAKE_INSTALL_RPATH)
    list(PREPEND WEFT_PC_LIBRARIES -Wl,-rpath,${CMAKE_INSTALL_RPATH})
endif()
list(JOIN WEFT_PC_LIBRARIES " " WEFT_PC_LIBRARIES)
install(CODE "
set(version ${PROJECT_VERSION})
set(include_folder ${CMAKE_INSTALL_INCLUDEDIR})
set(library_folder ${CMAKE_INSTALL_LIBDIR})
string(REPLACE \" \" \"\\\\ \" prefix \"\${CMAKE_INSTALL_PREFIX}\")
foreach(name weft weft-static)
    set(libs \"-L\\\${libdir} -lweft\")
    if(name STREQUAL weft-static)
        set(libs \"-L\\\${libdir} -l:libweft.a ${WEFT_PC_LIBRARIES}\")
    endif()
    configure_file(\"${PROJECT_SOURCE_DIR}/cmake/weft.pc.in\"
        \"${PROJECT_BINARY_DIR}/\${name}.pc\" @ONLY)
    file(INSTALL \"${PROJECT_BINARY_DIR}/\${name}.pc\"
        DESTINATION \"\${CMAKE_INSTALL_PREFIX}/\${library_folder}/pkgconfig\")
endforeach()")
