/* SPDX-License-Identifier: Apache-2.0
 *
 * What may fail: calls of CUDA's, and the source. ERRORS times, anywhere.
 */

byte errors_left = ERRORS;

/* Within an atomic. A call of CUDA's; with LOST, from some call on they all fail. */
#ifdef LOST
bool device_lost;
#define MAY_WORK !device_lost
#define MAY_FAIL true
#define IT_FAILS device_lost = true
#else
#define MAY_WORK true
#define MAY_FAIL errors_left > 0
#define IT_FAILS errors_left--
#endif
inline call(ok) {
  if
  :: MAY_WORK -> ok = true
  :: MAY_FAIL -> IT_FAILS; ok = false
  fi
}
