// The text of a caught exception.
#pragma once

#include <cxxabi.h>

#include <cstdlib>
#include <exception>
#include <string>
#include <typeinfo>

namespace penstock::sdk {

// Type and text of the exception that is being handled: "std::out_of_range: vector::at". May only
// be called within a catch block.
inline std::string current_exception_text() {
  std::string type = "an exception of unknown type";
  if (const std::type_info* thrown = abi::__cxa_current_exception_type()) {
    int failed = 0;
    char* readable = abi::__cxa_demangle(thrown->name(), nullptr, nullptr, &failed);
    type = readable != nullptr ? readable : thrown->name();
    std::free(readable);
  }
  try {
    throw;
  } catch (const std::exception& error) {
    return type + ": " + error.what();
  } catch (...) {
    return type;
  }
}

}  // namespace penstock::sdk
