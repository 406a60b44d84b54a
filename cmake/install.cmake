# `cmake --install`: program, libraries, headers, weft.pc, weftConfig.cmake, man pages, completions.
include(CMakePackageConfigHelpers)
set(package ${CMAKE_INSTALL_LIBDIR}/cmake/weft)

# The man pages and the completions come from the tables in src/cli: weft.1 and a page per verb.
set(pages weft.1)
set(weft.1_from --man)
foreach(shell bash zsh fish)
    list(APPEND pages weft.${shell})
    set(weft.${shell}_from --${shell})
endforeach()
file(STRINGS src/cli/options/verbs.def verbs REGEX "^VERB")
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS src/cli/options/verbs.def)
foreach(verb ${verbs})
    string(REGEX REPLACE "VERB\\((.*)\\)" "\\1" verb ${verb})
    if(NOT verb MATCHES "^(help|stills|worker|child_starter)$") # hidden
        list(APPEND pages weft-${verb}.1)
        set(weft-${verb}.1_from --man ${verb})
    endif()
endforeach()
foreach(page ${pages})
    add_custom_command(OUTPUT ${page} DEPENDS weft VERBATIM
        COMMAND $<TARGET_FILE:weft> help ${${page}_from} > ${page}.tmp
        COMMAND ${CMAKE_COMMAND} -E rename ${page}.tmp ${page})
endforeach()
add_custom_target(manual ALL DEPENDS ${pages})

install(TARGETS weft)
install(TARGETS weft_shared EXPORT weftSharedTargets)
install(TARGETS weft_static EXPORT weftStaticTargets)
set(manual_pages ${pages})
list(FILTER manual_pages INCLUDE REGEX "1$")
list(TRANSFORM manual_pages PREPEND ${PROJECT_BINARY_DIR}/)
install(FILES ${manual_pages} DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
install(FILES ${PROJECT_BINARY_DIR}/weft.bash RENAME weft
    DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
install(FILES ${PROJECT_BINARY_DIR}/weft.zsh RENAME _weft
    DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
install(FILES ${PROJECT_BINARY_DIR}/weft.fish
    DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)

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
