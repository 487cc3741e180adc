// SPDX-License-Identifier: Apache-2.0

// The end of each source that extract.py makes: runs the examples one after the other.

#include <exception>
#include <iostream>

int main() {
  int failed = 0;
  for (const Listed& example : listed) {
    std::cout << "---- " << example.place << std::endl;
    try {
      example.run();
    } catch (const std::exception& error) {
      std::cout << example.place << " FAILED: " << error.what() << std::endl;
      ++failed;
    }
    clean_up();
  }
  std::cout << std::size(listed) << " examples, " << failed << " failed" << std::endl;
  return failed == 0 ? 0 : 1;
}
