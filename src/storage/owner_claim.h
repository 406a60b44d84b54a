/* The claim of a run on a location of a bucket, as a JSON file. */
#ifndef WEFT_STORAGE_OWNER_CLAIM_H
#define WEFT_STORAGE_OWNER_CLAIM_H

#include "storage/storage.h"

typedef struct weft_owner_claim {
    char token[32];     /* names the file */
    char host[128];     /* name of the machine */
    char machine[96];   /* start of the machine, and the space of process ids */
    char since[32];     /* UTC */
    int64_t pid, start; /* process, and its start in ticks since the start of the machine */
    int64_t count;      /* renewals */
    double seconds;     /* WEFT_OWNER_SECONDS of the run */
    bool owns;          /* false: the run has not looked for others yet */
} weft_owner_claim;

/* A new claim of this process. WEFT_E_CONFIG: WEFT_OWNER_SECONDS is not a number of seconds. */
weft_status weft_owner_claim_make(weft_owner_claim *claim);
weft_status weft_owner_claim_write(weft_storage *storage, const weft_owner_claim *claim);
weft_status weft_owner_claim_remove(weft_storage *storage, const char *token);
/* Lists the claims of a location; the caller frees *claim, [*count]. A claim that cannot be read
 * has its token only. */
weft_status weft_owner_claim_list(weft_storage *storage, weft_owner_claim **claim, int64_t *count);
/* Reads the claim with the token of *claim again. *exists false: it was removed. */
weft_status weft_owner_claim_find(weft_storage *storage, weft_owner_claim *claim, bool *exists);

typedef enum weft_owner_life {
    WEFT_OWNER_LIVES,
    WEFT_OWNER_DEAD,
    WEFT_OWNER_ELSEWHERE
} weft_owner_life;
/* Whether the process of a claim lives; ELSEWHERE: it is of another machine. */
weft_owner_life weft_owner_claim_life(const weft_owner_claim *claim);

#endif
