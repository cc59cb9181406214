# SPDX-License-Identifier: Apache-2.0
# Run by cpack between laying out the Debian packages and packing them: puts copyright and changelogs where Debian looks
# for them, in the place of the LICENSE files that other installations have.
set(sources ${CMAKE_CURRENT_LIST_DIR}/..)
set(version "${CPACK_PACKAGE_VERSION}-${CPACK_DEBIAN_PACKAGE_RELEASE}")
string(TIMESTAMP date "%a, %d %b %Y %H:%M:%S +0000" UTC) # SOURCE_DATE_EPOCH, where it is set
foreach(component runtime dev)
  string(TOUPPER ${component} upper)
  set(usr ${CPACK_TEMPORARY_DIRECTORY}/${component}/usr)
  set(folder ${usr}/share/doc/${CPACK_DEBIAN_${upper}_PACKAGE_NAME})
  set(comment)
  if(EXISTS ${usr}/share/doc/gradscaler/LICENSE-runtime.txt)
    file(MAKE_DIRECTORY ${folder})
    file(RENAME ${usr}/share/doc/gradscaler/LICENSE-runtime.txt ${folder}/third-party.txt)
    set(comment "Comment: the licenses of the C++ runtime that is linked in are in third-party.txt\n")
  endif()
  file(REMOVE_RECURSE ${usr}/share/doc/gradscaler)
  file(WRITE ${folder}/copyright
"Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: ${CPACK_PACKAGE_NAME}
Source: ${CPACK_PACKAGE_HOMEPAGE_URL}

Files: *
Copyright: 2026 ${CPACK_PACKAGE_VENDOR}
License: Apache-2.0
${comment}
License: Apache-2.0
 On Debian systems the complete text is in /usr/share/common-licenses/Apache-2.0.
")
  file(COPY_FILE ${sources}/CHANGELOG.md ${folder}/changelog)
  file(WRITE ${folder}/changelog.Debian
"${CPACK_PACKAGE_NAME} (${version}) unstable; urgency=medium

  * Release ${CPACK_PACKAGE_VERSION}.

 -- ${CPACK_PACKAGE_CONTACT}  ${date}
")
  execute_process(COMMAND gzip -9n ${folder}/changelog ${folder}/changelog.Debian COMMAND_ERROR_IS_FATAL ANY)
endforeach()
