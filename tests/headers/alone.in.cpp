// Generated: @header@ needs nothing before it, and may be included twice.
#include <penstock/@header@>
#include <penstock/@header@>
