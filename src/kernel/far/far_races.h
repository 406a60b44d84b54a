/* Finds accesses of two streams to the same memory without an event between them. Each stream has a
 * vector clock: the position in every stream that its next work comes after. The host has one, too:
 * the positions that it has waited for. The check is made when work begins,
 * because the clock of work after a gate is not known before. Accesses are kept until all work that
 * was submitted before the host's wait has begun. So the result does not depend on speeds. */
#ifndef WEFT_KERNEL_FAR_FAR_RACES_H
#define WEFT_KERNEL_FAR_FAR_RACES_H

#include <stdbool.h>
#include <stdint.h>

enum { FAR_STREAMS = 256 };

typedef struct far_clock {
    int64_t at[FAR_STREAMS];
} far_clock;

/* The node that an access belongs to; the texts are borrowed from its graph. */
typedef struct far_node {
    int32_t number; /* -1: none */
    const char *op, *scope;
} far_node;

typedef struct far_access {
    const char *begin, *end;
    bool writes;
} far_access;

/* "node 3, add of blocks.0" */
const char *far_node_text(const far_node *node, char text[256]);
/* Takes a free position in clocks; -1: all are in use. */
int far_clock_take(void);
void far_clock_release(int stream);
/* The position of submitted work, and the state of the host then. */
typedef struct far_ticket {
    int64_t time;
    struct far_seen *seen;
} far_ticket;

/* Adds work of `stream` with its accesses. */
far_ticket far_races_submit(int stream, const far_node *node, const far_access *access, int count);
/* The work begins: it is the last of its stream's clock. Aborts the process, and names both nodes,
 * if an access conflicts with begun work of another stream that the clock does not cover. */
void far_races_begin(int stream, far_clock *clock, const far_ticket *ticket);
void far_clock_join(far_clock *to, const far_clock *from);
/* The host has waited for everything in `clock`. */
void far_races_seen(const far_clock *clock);
/* Joins what the host has waited for. */
void far_races_join_host(far_clock *to);
/* Aborts if work that the host has not waited for may access the bytes. */
void far_races_release(const void *data, int64_t bytes);

#endif
