// SPDX-License-Identifier: Apache-2.0

#include "xml.hpp"

#include <expat.h>

#include <algorithm>
#include <cstddef>
#include <exception>
#include <memory>
#include <new>
#include <string>
#include <type_traits>
#include <vector>

namespace penstock::inline PENSTOCK_ABI::remote {

namespace {

constexpr std::size_t kDeepest = 16, kPart = std::size_t{1} << 20;

class Reader {
 public:
  using Take = std::function<void(std::string_view, std::string_view)>;

  explicit Reader(const Take& take) : take_(take) {
    if (!parser_) throw std::bad_alloc();
    XML_SetUserData(parser_.get(), this);
    XML_SetElementHandler(
        parser_.get(),
        [](void* self, const XML_Char* name, const XML_Char**) {
          of(self).call(&Reader::begin, name);
        },
        [](void* self, const XML_Char*) { of(self).call(&Reader::end); });
    XML_SetCharacterDataHandler(parser_.get(), [](void* self, const XML_Char* text, int length) {
      of(self).call(&Reader::add, std::string_view(text, static_cast<std::size_t>(length)));
    });
    XML_SetStartDoctypeDeclHandler(
        parser_.get(), [](void* self, const XML_Char*, const XML_Char*, const XML_Char*, int) {
          of(self).call(&Reader::refuse_document_type);
        });
  }

  void read(std::string_view xml) {
    do {
      const std::string_view part = xml.substr(0, kPart);
      xml.remove_prefix(part.size());
      const auto status =
          XML_Parse(parser_.get(), part.data(), static_cast<int>(part.size()), xml.empty());
      if (failure_ != nullptr) rethrow();
      if (status != XML_STATUS_OK)
        throw XmlError(place() + XML_ErrorString(XML_GetErrorCode(parser_.get())));
    } while (!xml.empty());
  }

 private:
  struct Open {
    std::size_t path;  // bytes of it without this element
    std::string text;
  };

  static Reader& of(void* self) { return *static_cast<Reader*>(self); }

  /// libexpat is C, and must not be left by an exception.
  template <class... Arguments>
  void call(void (Reader::*member)(std::type_identity_t<Arguments>...), Arguments... arguments) {
    if (failure_ != nullptr) return;
    try {
      (this->*member)(arguments...);
    } catch (...) {
      failure_ = std::current_exception();
      failed_at_ = place();
      XML_StopParser(parser_.get(), XML_FALSE);
    }
  }

  void begin(const XML_Char* whole_name) {
    if (depth_ == kDeepest) throw std::runtime_error("elements are nested too deep");
    std::string_view name = whole_name;
    if (const std::size_t colon = name.find(':'); colon != std::string_view::npos)
      name.remove_prefix(colon + 1);
    if (depth_ == open_.size()) open_.emplace_back();
    open_[depth_].path = path_.size();
    open_[depth_].text.clear();
    if (++depth_ > 1) path_ += '/';
    path_ += name;
  }
  void add(std::string_view text) {
    if (depth_ > 0) open_[depth_ - 1].text += text;
  }
  void end() {
    const Open& element = open_[--depth_];
    take_(path_, element.text);
    path_.resize(element.path);
  }
  void refuse_document_type() { throw std::runtime_error("it has a document type (<!DOCTYPE>)"); }

  std::string place() const {
    return "line " + std::to_string(XML_GetCurrentLineNumber(parser_.get())) + ", column " +
           std::to_string(XML_GetCurrentColumnNumber(parser_.get()) + 1) + ": ";
  }
  [[noreturn]] void rethrow() const {
    try {
      std::rethrow_exception(failure_);
    } catch (const std::runtime_error& error) {
      throw XmlError(failed_at_ + error.what());
    }
  }

  std::unique_ptr<std::remove_pointer_t<XML_Parser>, void (*)(XML_Parser)> parser_{
      XML_ParserCreate(nullptr), &XML_ParserFree};
  const Take& take_;
  std::exception_ptr failure_;
  std::string failed_at_;
  std::string path_;
  std::vector<Open> open_;  // its texts are used again
  std::size_t depth_ = 0;
};

}  // namespace

void read_xml(std::string_view xml,
              const std::function<void(std::string_view, std::string_view)>& take) {
  Reader(take).read(xml);
}

}  // namespace penstock::remote
