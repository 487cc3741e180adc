// SPDX-License-Identifier: Apache-2.0
#include "job_secret.hpp"

#include <fcntl.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "connection.hpp"

namespace resnet {

namespace {

constexpr const char* kVariable = "PENSTOCK_JOB_SECRET";
constexpr const char* kFileVariable = "PENSTOCK_JOB_SECRET_FILE";

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::string text_of_file(const std::string& path) {
  const std::string file = std::string(kFileVariable) + ": " + path;
  const Socket opened(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat status {};
  std::array<char, 4096> text;
  ssize_t size = -1;
  if (opened && ::fstat(opened.descriptor(), &status) == 0) {
    if ((status.st_mode & (S_IRWXG | S_IRWXO)) != 0)
      throw std::invalid_argument(file +
                                  " may be read or written by others than its owner, so it is no "
                                  "secret: chmod 600 it, and make a new secret");
    size = ::read(opened.descriptor(), text.data(), text.size());
  }
  if (size < 0)
    throw std::invalid_argument(file + ": " +
                                std::error_code(errno, std::generic_category()).message());
  std::string secret(text.data(), static_cast<std::size_t>(size));
  OPENSSL_cleanse(text.data(), text.size());
  if (secret.ends_with('\n')) secret.pop_back();
  if (secret.empty()) throw std::invalid_argument(file + " is empty");
  return secret;
}

}  // namespace

JobSecret::JobSecret(std::string text) : text_(std::move(text)) {
  if (text_.size() < kShortest)
    throw std::invalid_argument("the job's secret has " + std::to_string(text_.size()) +
                                " characters, and could be guessed: take one of " +
                                std::to_string(kShortest) +
                                " or more, such as that of `openssl rand -hex 32`");
}

JobSecret::~JobSecret() {
  OPENSSL_cleanse(text_.data(), text_.size());
}

JobSecret JobSecret::from_environment() {
  std::string text = variable(kVariable);
  const std::string path = variable(kFileVariable);
  if (!text.empty() && !path.empty())
    throw std::invalid_argument(std::string(kVariable) + " and " + kFileVariable +
                                " are both set: set one of them");
  if (!path.empty()) text = text_of_file(path);
  return text.empty() ? JobSecret() : JobSecret(std::move(text));
}

std::string JobSecret::proof(std::string_view role, std::string_view nonces,
                             std::string_view text) const {
  // The role has no zero, and the nonces of a call have one length: no two calls make one text.
  std::string message(role);
  message.append(1, '\0').append(nonces).append(text);
  std::string proof(kProof, '\0');
  unsigned int size = 0;
  if (::HMAC(::EVP_sha256(), text_.data(), static_cast<int>(text_.size()),
             reinterpret_cast<const unsigned char*>(message.data()), message.size(),
             reinterpret_cast<unsigned char*>(proof.data()), &size) == nullptr ||
      size != kProof)
    throw std::runtime_error("OpenSSL makes no HMAC-SHA256");
  return proof;
}

bool JobSecret::accepts(std::string_view proof, std::string_view role, std::string_view nonces,
                        std::string_view text) const {
  const std::string right = this->proof(role, nonces, text);
  return proof.size() == right.size() &&
         ::CRYPTO_memcmp(proof.data(), right.data(), right.size()) == 0;
}

std::string nonce() {
  std::string bytes(kNonce, '\0');
  if (::RAND_bytes(reinterpret_cast<unsigned char*>(bytes.data()), static_cast<int>(kNonce)) != 1)
    throw std::runtime_error("OpenSSL has no random numbers");
  return bytes;
}

}  // namespace resnet
