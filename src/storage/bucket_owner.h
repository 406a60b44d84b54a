/* The run that writes below a location of a bucket: at most one at a time, on any machine.
 *
 *     s3://BUCKET/run/.weft-owner/TOKEN.json    host, process, state, count of renewals
 *
 * A run writes a claim with a name of its own, and then lists all claims. A run that sees another
 * one withdraws. If a list has every finished write, of two runs at least one sees the other; S3
 * guarantees this. No conditional write and no clock of another machine is needed.
 *
 * A child process renews the claim. A claim of this machine is dead when its process has ended. A
 * claim of another machine is dead when nothing has renewed the claim for 1.5 times its seconds
 * (WEFT_OWNER_SECONDS, 60): a new run waits for this time, and removes the claim.
 *
 * An owner that was cut off for longer can thus lose its claim. It notices that at the next check,
 * before it writes. Requests that began earlier may still arrive. */
#ifndef WEFT_STORAGE_BUCKET_OWNER_H
#define WEFT_STORAGE_BUCKET_OWNER_H

#include "storage/owner_keeper.h"

#define WEFT_OWNER_FOLDER ".weft-owner"

typedef struct weft_bucket_owner weft_bucket_owner;
/* `root`: s3://BUCKET/PREFIX. `name`: of results that have claims of their own there; NULL: all.
 * `location`: for messages, borrowed. Call it while the process has one thread. `wait`: waits until
 * no other run works there. The error folder-locked names the other machine. */
weft_status weft_bucket_owner_open(const char *root, const char *name, const char *location,
                                   bool wait, weft_bucket_owner **owner);
/* Does the same for all results of `root`, borrowed, at any time: `keeper`, borrowed, was started
 * before, and renews one claim at a time. */
weft_status weft_bucket_owner_open_kept(const char *root, bool wait, weft_owner_keeper *keeper,
                                        weft_bucket_owner **owner);
/* Fails as the open while another run owns the location, and claims nothing. For runs that share
 * the location with others of their kind: their checks look for an owner that began since. */
weft_status weft_bucket_owner_open_shared(const char *root, bool wait, weft_bucket_owner **owner);
/* Call it before a group of writes; also in child processes. The error folder-locked names the
 * machine that has taken the location. Accepts NULL. */
weft_status weft_bucket_owner_check(weft_bucket_owner *owner);
/* Whether an object is a claim, by its name. Claims change and vanish while other runs write. */
bool weft_bucket_owner_is_claim(const char *name);
/* Removes the claim, unless this is a child of the process that opened it. Accepts NULL. */
void weft_bucket_owner_close(weft_bucket_owner *owner);

#endif
