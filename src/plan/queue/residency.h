/* The choice of loaded weights that leave the memory of a worker, as functions of numbers. */
#ifndef WEFT_PLAN_QUEUE_RESIDENCY_H
#define WEFT_PLAN_QUEUE_RESIDENCY_H

#include <stdint.h>

/* Weights that are loaded. */
typedef struct weft_residency {
    int64_t bytes;
    int64_t users; /* jobs that use the weights now; such weights stay */
    double used;   /* time at which the last use ended */
    int64_t order; /* of the last use; unique */
} weft_residency;

/* Index of the weights to unload first so that all weights without users have at most `room` bytes:
 * the weights whose last use is longest ago. -1: nothing is to be unloaded. */
int64_t weft_residency_victim(const weft_residency *all, int64_t count, int64_t room);
/* Index of weights without users for at least `idle` seconds, the longest first; -1: none. */
int64_t weft_residency_idle(const weft_residency *all, int64_t count, double idle, double now);
/* Seconds until weft_residency_idle finds weights; negative: no weights are without users. */
double weft_residency_wait(const weft_residency *all, int64_t count, double idle, double now);

#endif
