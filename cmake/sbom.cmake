# SPDX-License-Identifier: Apache-2.0
#
# Writes and installs a bill of materials (SBOM, SPDX 2.3): penstock, and what its libraries and programs need, in the versions
# that this configuration found. SOURCE_DATE_EPOCH sets its date.

# sbom_package(<id> <name> <version> <license> <home page>): adds to `packages` and `relationships`.
macro(sbom_package id name version license page)
  set(known "${version}")
  if(known STREQUAL "")
    set(known NOASSERTION)
  endif()
  string(APPEND packages ",
    {\"SPDXID\": \"SPDXRef-${id}\", \"name\": \"${name}\", \"versionInfo\": \"${known}\", \"downloadLocation\": \"${page}\",
     \"filesAnalyzed\": false, \"licenseConcluded\": \"NOASSERTION\", \"licenseDeclared\": \"${license}\", \"copyrightText\": \"NOASSERTION\"}")
  string(APPEND relationships ",
    {\"spdxElementId\": \"SPDXRef-penstock\", \"relationshipType\": \"DEPENDS_ON\", \"relatedSpdxElement\": \"SPDXRef-${id}\"}")
endmacro()

set(packages "
    {\"SPDXID\": \"SPDXRef-penstock\", \"name\": \"penstock\", \"versionInfo\": \"${PROJECT_VERSION}\",
     \"supplier\": \"Organization: The penstock authors\", \"downloadLocation\": \"NOASSERTION\", \"filesAnalyzed\": false,
     \"licenseConcluded\": \"Apache-2.0\", \"licenseDeclared\": \"Apache-2.0\", \"copyrightText\": \"2026 The penstock authors\"}")
set(relationships "
    {\"spdxElementId\": \"SPDXRef-DOCUMENT\", \"relationshipType\": \"DESCRIBES\", \"relatedSpdxElement\": \"SPDXRef-penstock\"}")
sbom_package(cuda "CUDA runtime, libcudacxx and NVTX" ${PenstockCudaHeaders_VERSION} NOASSERTION
             "https://developer.nvidia.com/cuda-toolkit")
if(TARGET penstock_images)
  sbom_package(libjpeg-turbo libjpeg-turbo "" "IJG AND BSD-3-Clause AND Zlib" "https://libjpeg-turbo.org")
endif()
if(TARGET penstock_remote)
  sbom_package(curl libcurl "${CURL_VERSION_STRING}" curl "https://curl.se")
  sbom_package(openssl OpenSSL "${OPENSSL_VERSION}" Apache-2.0 "https://www.openssl.org")
  sbom_package(expat libexpat "${EXPAT_VERSION_STRING}" MIT "https://libexpat.github.io")
  sbom_package(nlohmann-json nlohmann-json "${nlohmann_json_VERSION}" MIT "https://json.nlohmann.me")
endif()
if(TARGET penstock_video)
  sbom_package(ffmpeg "FFmpeg's libavformat, libavcodec and libavutil" "${FFmpeg_VERSION}" LGPL-2.1-or-later "https://ffmpeg.org")
endif()
if(TARGET penstock-trace OR TARGET penstock-pack)
  sbom_package(cli11 CLI11 "${CLI11_VERSION}" BSD-3-Clause "https://github.com/CLIUtils/CLI11")
endif()
string(TIMESTAMP now "%Y-%m-%dT%H:%M:%SZ" UTC)
string(SHA256 content "${packages}${relationships}")
string(SUBSTRING ${content} 0 32 content)
file(CONFIGURE OUTPUT penstock.spdx.json CONTENT "{
  \"spdxVersion\": \"SPDX-2.3\",
  \"dataLicense\": \"CC0-1.0\",
  \"SPDXID\": \"SPDXRef-DOCUMENT\",
  \"name\": \"penstock-${PROJECT_VERSION}\",
  \"documentNamespace\": \"https://spdx.org/spdxdocs/penstock-${PROJECT_VERSION}-${content}\",
  \"creationInfo\": {\"created\": \"${now}\", \"creators\": [\"Organization: The penstock authors\", \"Tool: CMake-${CMAKE_VERSION}\"]},
  \"packages\": [${packages}],
  \"relationships\": [${relationships}]
}
" @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/penstock.spdx.json DESTINATION ${CMAKE_INSTALL_DATAROOTDIR}/doc/penstock COMPONENT dev)
