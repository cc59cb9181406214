# SPDX-License-Identifier: Apache-2.0
# Makes the jars of classes, sources and Javadoc, and the folder that Maven builds the same from. Arguments: JAVAC, JAR,
# JAVADOC, VERSION, FOLDERS (of the package's files), MODULE (module-info.java), POM, LICENSE, OUTPUT (folder),
# JAVAC22 (of a JDK of version 22 or later, or empty: then what is for those versions is left out) and SOURCES22. A warning
# in Javadoc is an error; gen_java.py sees to it that everything public has a comment.
set(package io/github/gradscaler)
set(project ${OUTPUT}/project)
set(classes ${OUTPUT}/classes)
set(javadoc ${OUTPUT}/javadoc)
set(versioned ${project}/src/main/resources/META-INF/versions/22)
file(REMOVE_RECURSE ${project} ${classes} ${javadoc})
file(MAKE_DIRECTORY ${classes} ${javadoc})
list(TRANSFORM FOLDERS APPEND /*.java)
file(GLOB sources ${FOLDERS})
file(COPY ${sources} DESTINATION ${project}/src/main/java/${package})
file(COPY ${MODULE} DESTINATION ${project}/src/main/java)
file(COPY ${LICENSE} DESTINATION ${project}/src/main/resources/META-INF)
file(READ ${POM} pom)
string(REGEX MATCH "    <!-- natives[^\n]*\n(.*)    <!-- end -->\n" marked "${pom}")
set(profile "${CMAKE_MATCH_1}")
set(profiles)
foreach(system linux macos windows)
  foreach(processor x86_64 aarch64)
    string(REPLACE "@platform@" ${system}-${processor} text "${profile}")
    string(APPEND profiles "${text}")
  endforeach()
endforeach()
string(REPLACE "${marked}" "${profiles}" pom "${pom}")
file(WRITE ${project}/pom.xml "${pom}")
list(APPEND sources ${MODULE})

include(${CMAKE_CURRENT_LIST_DIR}/jar.cmake)

# The options of maven-compiler-plugin, which makes the same class files.
run(${JAVAC} --release 11 -g --module-version ${VERSION} -Xlint:all -Werror -encoding UTF-8 -d ${classes} ${sources})
# Compiled once, here: Maven takes it as a resource, so that it needs no second JDK.
if(JAVAC22)
  file(GLOB sources22 ${SOURCES22}/${package}/*.java)
  run(${JAVAC22} --release 22 -g -Xlint:all -Werror -encoding UTF-8 -cp ${classes} -d ${versioned} ${sources22})
  # Where IDEs look for the sources of a versioned class in the jar of sources.
  file(COPY ${sources22} DESTINATION ${versioned}/${package})
endif()
file(COPY ${project}/src/main/resources/META-INF DESTINATION ${classes} PATTERN "*.java" EXCLUDE)
set(prefix ${OUTPUT}/gradscaler-${VERSION})
file(WRITE ${OUTPUT}/manifest.txt "Implementation-Title: gradscaler\nImplementation-Version: ${VERSION}\nMulti-Release: true\n")
jar(${prefix}.jar --manifest ${OUTPUT}/manifest.txt -C ${classes} .)
set(versioned_sources)
foreach(source ${sources22})
  cmake_path(GET source FILENAME name)
  list(APPEND versioned_sources -C ${project}/src/main/resources META-INF/versions/22/${package}/${name})
endforeach()
jar(${prefix}-sources.jar -C ${project}/src/main/java .
    -C ${project}/src/main/resources META-INF/LICENSE ${versioned_sources})
run(${JAVADOC} -quiet -Xdoclint:all,-missing -Werror -encoding UTF-8 -notimestamp --release 11 -d ${javadoc}
    -windowtitle "gradscaler ${VERSION}" ${sources})
jar(${prefix}-javadoc.jar -C ${javadoc} .)
