/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/* Places where another thread or process may be first: see steps.c. */
#ifndef SIMULATED_STEPS_H
#define SIMULATED_STEPS_H

#include <stdbool.h>
#include <stdint.h>

void draw_steps(uint64_t seed);
/* Whether the calling thread is one of those that take turns, or the only one of the program. */
bool is_driver(void);
/* Around a wait in the kernel: the other thread goes on. */
void goes_away(void);
void comes_back(void);

/* Called by the library, and by programs. */
/* Either one of the accesses that look for something new, or a rare one. */
void simulated_step(bool is_rare);
void simulated_yield(void);
bool simulated_weave(void (*what)(void));
void simulated_unweave(void);
uint64_t simulated_steps(void);
void simulated_ends(uint64_t steps, int number);

#endif
