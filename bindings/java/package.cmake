# SPDX-License-Identifier: Apache-2.0
# Makes the jars of classes, sources and Javadoc from the hand-written and the generated Java files, and the folder that
# Maven would build the same from. Arguments: JAVAC, JAR, JAVADOC, VERSION, SOURCES (folder of hand-written files),
# GENERATED (folder), POM, LICENSE, OUTPUT (folder). Javadoc covers what is public, and a warning in it is an error.
set(package io/github/gradscaler)
set(project ${OUTPUT}/project)
set(classes ${OUTPUT}/classes)
set(javadoc ${OUTPUT}/javadoc)
file(REMOVE_RECURSE ${project} ${classes} ${javadoc})
file(MAKE_DIRECTORY ${project}/src/main/java/${package} ${classes}/META-INF ${javadoc})
file(GLOB sources ${SOURCES}/${package}/*.java ${GENERATED}/*.java)
file(COPY ${sources} DESTINATION ${project}/src/main/java/${package})
file(COPY ${POM} DESTINATION ${project})
file(COPY ${LICENSE} DESTINATION ${classes}/META-INF)

function(run)
  execute_process(COMMAND ${ARGN} COMMAND_ERROR_IS_FATAL ANY)
endfunction()

run(${JAVAC} --release 11 -Xlint:all -Werror -encoding UTF-8 -d ${classes} ${sources})
file(WRITE ${OUTPUT}/manifest.txt "Automatic-Module-Name: io.github.gradscaler\nImplementation-Version: ${VERSION}\n")
run(${JAR} --create --file ${OUTPUT}/gradscaler-${VERSION}.jar --manifest ${OUTPUT}/manifest.txt -C ${classes} .)
run(${JAR} --create --file ${OUTPUT}/gradscaler-${VERSION}-sources.jar -C ${project}/src/main/java .)
run(${JAVADOC} -quiet -Xdoclint:all -Werror -encoding UTF-8 -notimestamp --release 11 -d ${javadoc}
    -windowtitle "gradscaler ${VERSION}" ${sources})
run(${JAR} --create --file ${OUTPUT}/gradscaler-${VERSION}-javadoc.jar -C ${javadoc} .)
