// Generated: @header@ uses no name that other people's headers define as a macro.
#include "poison.hpp"

#include <penstock/@header@>
