/* The ranks of a job as threads of this process, for tests. */
#ifndef TESTS_RANKS_OF_H
#define TESTS_RANKS_OF_H

#include "comm/comm.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <stdio.h>

enum { RANKS_OF_MOST = 64 };
typedef weft_status_code rank_body(void *job);
typedef struct rank_of {
    rank_body *body;
    void *job;
    weft_comm *comm;
    char error[512];
} rank_of;

static inline void *rank_of_main(void *user)
{
    rank_of *r = user;
    if (r->body(r->job) != WEFT_OK) {
        snprintf(r->error, sizeof r->error, "%s", weft_error_message());
        weft_comm_abort(r->comm);
    }
    return NULL;
}

/* Runs body(job) on every rank, each in a thread; job r is at `jobs` + r * `bytes`. All must
 * succeed. Frees the communicators. */
static inline void run_ranks(const char *what, int ranks, weft_comm *const *comm, rank_body *body,
                             void *jobs, size_t bytes)
{
    rank_of rank[RANKS_OF_MOST];
    pthread_t thread[RANKS_OF_MOST];
    cr_assert_leq(ranks, RANKS_OF_MOST);
    for (int r = 0; r < ranks; r++) {
        rank[r] = (rank_of){.body = body, .job = (char *)jobs + (size_t)r * bytes, .comm = comm[r]};
        pthread_create(&thread[r], NULL, rank_of_main, &rank[r]);
    }
    for (int r = 0; r < ranks; r++)
        pthread_join(thread[r], NULL);
    for (int r = 0; r < ranks; r++) {
        weft_comm_free(comm[r]);
        cr_assert_str_empty(rank[r].error, "%s, rank %d: %s", what, r, rank[r].error);
    }
}

#endif
