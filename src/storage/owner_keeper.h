/* The child process that renews the claim of a run (owner_claim.h).
 *
 *     run ── order: folder, claim ──> keeper ── every sixth of its seconds ──> bucket
 *         <── done ──
 *
 * It is forked while the process has one thread, and gets its orders later, from any thread. It
 * ends with its parent, and ignores Ctrl-C. */
#ifndef WEFT_STORAGE_OWNER_KEEPER_H
#define WEFT_STORAGE_OWNER_KEEPER_H

#include "storage/owner_claim.h"

typedef struct weft_owner_keeper weft_owner_keeper;
/* Call it while the process has one thread. */
weft_status weft_owner_keeper_start(weft_owner_keeper **keeper);
/* Renews this claim below `folder` (s3://BUCKET/PREFIX) in place of the last one, until another run
 * removes the claim. */
weft_status weft_owner_keeper_renew(weft_owner_keeper *keeper, const char *folder,
                                    const weft_owner_claim *claim);
/* Renews nothing. Returns when no renewal is under way, so that a claim which is removed then does
 * not come back. */
void weft_owner_keeper_pause(weft_owner_keeper *keeper);
/* Ends the process, also during a request. A child of the process that started it only closes its
 * copy. Accepts NULL. */
void weft_owner_keeper_end(weft_owner_keeper *keeper);

#endif
