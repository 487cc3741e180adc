// SPDX-License-Identifier: Apache-2.0
#pragma once

// What the examples of docs/trace.md and of penstock::trace's headers take for granted. Compiled
// only: a process has one session, and each of these examples wants it.

#include <chrono>
#include <iostream>
#include <penstock/trace/findings.hpp>
#include <penstock/trace/recording.hpp>
#include <penstock/trace/report.hpp>
#include <penstock/trace/session.hpp>
#include <penstock/trace/views.hpp>
#include <stdexcept>

namespace {

using namespace penstock::trace;

struct Bare {
  Session session;
  Timeline timeline;
};

void step() {}
void run_my_loop() {}
void serve() {}
void clean_up() {}

#define REQUIRE(condition) \
  if (!(condition)) throw std::runtime_error(#condition)

}  // namespace
