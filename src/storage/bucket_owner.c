#include "storage/bucket_owner.h"

#include "base/log.h"
#include "base/rng.h"
#include "storage/stoppable_wait.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { ATTEMPTS = 8, MOST_REMOVED = 16 };

struct weft_bucket_owner {
    const char *location; /* borrowed */
    char *folder;         /* owned */
    weft_storage *storage;
    weft_owner_claim claim;
    char removed[MOST_REMOVED][32]; /* tokens of dead claims that this run has removed */
    int removed_count;
    bool claims;          /* false: it only looks for owners */
    pthread_mutex_t lock; /* of a look; threads of a run share it */
    bool written;
    pid_t process;             /* that opened the owner */
    weft_owner_keeper *keeper; /* renews the claim; NULL: none */
    bool lent;                 /* the keeper is the caller's */
};

/* ---- other runs ---------------------------------------------------------------------------- */

static weft_status fail_owned(const weft_bucket_owner *o, const weft_owner_claim *c)
{
    const bool known = c->host[0];
    return weft_error(
        WEFT_MSG_FOLDER_LOCKED,
        WEFT_AT(.file = o->location, .value = known ? c->host : NULL, WEFT_NUMBER(c->pid)),
        "another run writes here (process %" PRId64 " on %s, since %s UTC). Wait for "
        "that run, or end it. If its machine has stopped, start this command again: "
        "it takes over after %.0f seconds.",
        c->pid, known ? c->host : "an unknown machine", known ? c->since : "?", 1.5 * c->seconds);
}

static bool is_removed(const weft_bucket_owner *o, const char *token)
{
    for (int i = 0; i < o->removed_count; i++)
        if (!strcmp(o->removed[i], token))
            return true;
    return false;
}

/* Removes a dead claim. Another run that does so at the same time removes the same file. */
static weft_status take_over(weft_bucket_owner *o, const weft_owner_claim *c)
{
    weft_notice(WEFT_MSG_FOLDER_LOCKED, WEFT_AT(.file = o->location, .value = c->host),
                "the run of %s, since %s UTC, has ended and left its claim; this run takes over",
                c->host[0] ? c->host : "an unknown machine", c->since);
    WEFT_TRY(weft_owner_claim_remove(o->storage, c->token));
    if (o->removed_count < MOST_REMOVED)
        snprintf(o->removed[o->removed_count++], sizeof o->removed[0], "%s", c->token);
    return WEFT_OK;
}

typedef enum verdict { GONE, LIVES, DEAD } verdict;

/* Waits for a renewal of another machine's claim. */
static weft_status watch(const weft_bucket_owner *o, const weft_owner_claim *c, verdict *found)
{
    const double seconds = c->seconds > 0.1 ? c->seconds : 60, until = weft_now() + 1.5 * seconds;
    weft_owner_claim now = *c;
    bool exists = true;
    weft_notice(WEFT_MSG_FOLDER_LOCKED, WEFT_AT(.file = o->location, .value = c->host),
                "a run of %s, since %s UTC, has a claim here; waiting up to %.0f seconds for its "
                "renewal",
                c->host[0] ? c->host : "an unknown machine", c->since, 1.5 * seconds);
    *found = DEAD;
    while (weft_now() < until) {
        WEFT_TRY(weft_stoppable_wait((int64_t)(seconds < 20 ? 50 * seconds : 1000)));
        WEFT_TRY(weft_owner_claim_find(o->storage, &now, &exists));
        if (!exists || now.count != c->count || now.owns != c->owns) {
            *found = exists ? LIVES : GONE;
            return WEFT_OK;
        }
    }
    return WEFT_OK;
}

static weft_status judge(const weft_bucket_owner *o, const weft_owner_claim *c, verdict *found)
{
    const weft_owner_life life = weft_owner_claim_life(c);
    *found = life == WEFT_OWNER_LIVES ? LIVES : DEAD;
    return life == WEFT_OWNER_ELSEWHERE ? watch(o, c, found) : WEFT_OK;
}

/* Whether a claim is of another run, and not one that was removed. */
static bool is_other(const weft_bucket_owner *o, const weft_owner_claim *c)
{
    return strcmp(c->token, o->claim.token) != 0 && !is_removed(o, c->token);
}

/* Removes dead claims. *lives: *living is an owner. Otherwise it is the last other claim. */
static weft_status clear_others(weft_bucket_owner *o, bool *lives, weft_owner_claim *living)
{
    weft_owner_claim *all;
    int64_t count;
    verdict found;
    WEFT_TRY(weft_owner_claim_list(o->storage, &all, &count));
    *lives = false;
    weft_status_code status = WEFT_OK;
    for (int64_t i = 0; i < count && !*lives; i++) {
        if (!is_other(o, &all[i]))
            continue;
        WEFT_GO(judge(o, &all[i], &found));
        if (found == DEAD)
            WEFT_GO(take_over(o, &all[i]));
        *lives = found == LIVES && all[i].owns;
        *living = all[i];
    }
out:
    weft_free(all);
    return status;
}

/* *exist: `other` is the last other claim. */
static weft_status others_exist(const weft_bucket_owner *o, bool *exist, weft_owner_claim *other)
{
    weft_owner_claim *all;
    int64_t count;
    WEFT_TRY(weft_owner_claim_list(o->storage, &all, &count));
    *exist = false;
    for (int64_t i = 0; i < count; i++)
        if (is_other(o, &all[i])) {
            *exist = true;
            *other = all[i];
        }
    weft_free(all);
    return WEFT_OK;
}

/* ---- the claim ----------------------------------------------------------------------------- */

static weft_status withdraw(weft_bucket_owner *o)
{
    if (!o->written)
        return WEFT_OK;
    WEFT_TRY(weft_owner_claim_remove(o->storage, o->claim.token));
    o->written = false;
    return WEFT_OK;
}

/* Writes the claim and looks for others: *alone. Otherwise `other` is one. */
static weft_status try_claim(weft_bucket_owner *o, bool *alone, weft_owner_claim *other)
{
    bool others;
    WEFT_TRY(weft_owner_claim_make(&o->claim)); /* a new name: an old one may be removed as dead */
    WEFT_TRY(weft_owner_claim_write(o->storage, &o->claim));
    o->written = true;
    WEFT_TRY(others_exist(o, &others, other));
    *alone = !others;
    if (others)
        return withdraw(o);
    o->claim.owns = true;
    return weft_owner_claim_write(o->storage, &o->claim);
}

/* Waits for a random time: one of two runs that start together is then first. */
static weft_status step_aside(int attempt)
{
    const uint64_t seed = weft_seed_mix((uint64_t)getpid(), (uint64_t)(1e6 * weft_now()));
    return weft_stoppable_wait(
        (int64_t)(50 + seed % (uint64_t)(200 << (attempt < 4 ? attempt : 4))));
}

/* Returns when no living owner has the location, and claims it if `o->claims`. `wait`: waits for
 * the end of a living owner, which otherwise is an error. */
static weft_status settle(weft_bucket_owner *o, bool wait)
{
    weft_owner_claim living = {0};
    bool lives, alone = !o->claims, noted = false;
    for (int attempt = 0;; attempt++) {
        WEFT_TRY(clear_others(o, &lives, &living));
        if (lives && !wait)
            return fail_owned(o, &living);
        if (lives && !noted)
            weft_notice(WEFT_MSG_FOLDER_LOCKED, WEFT_AT(.file = o->location, .value = living.host),
                        "waiting for the run of %s", living.host);
        noted |= lives;
        if (!lives && o->claims)
            WEFT_TRY(try_claim(o, &alone, &living));
        if (!lives && alone)
            return WEFT_OK;
        if (!lives && !wait && attempt >= ATTEMPTS)
            return fail_owned(o, &living);
        WEFT_TRY(step_aside(attempt));
    }
}

/* ---- open, check, close -------------------------------------------------------------------- */

static weft_status make(const char *root, const char *name, const char *location,
                        weft_bucket_owner **owner)
{
    weft_bucket_owner *o;
    weft_buf folder = {0};
    size_t length = strlen(root);
    while (length > 0 && root[length - 1] == '/')
        length--;
    weft_buf_printf(&folder, "%.*s/" WEFT_OWNER_FOLDER "%s%s", (int)length, root, name ? "-" : "",
                    name ? name : "");
    WEFT_TRY(weft_buf_check(&folder));
    WEFT_TRY(WEFT_NEW(o, 1, "%s", location));
    *o = (weft_bucket_owner){.location = location, .process = getpid()};
    pthread_mutex_init(&o->lock, NULL);
    o->folder = folder.data;
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_storage_open(o->folder, &o->storage));
    WEFT_GO(weft_storage_check_writable(o->storage));
    *owner = o;
    return WEFT_OK;
out:
    weft_bucket_owner_close(o);
    return status;
}

weft_status weft_bucket_owner_open(const char *root, const char *name, const char *location,
                                   bool wait, weft_bucket_owner **owner)
{
    weft_bucket_owner *o;
    WEFT_TRY(make(root, name, location, &o));
    weft_status_code status = WEFT_OK;
    o->claims = true;
    WEFT_GO(settle(o, wait));
    WEFT_GO(weft_owner_keeper_start(&o->keeper));
    WEFT_GO(weft_owner_keeper_renew(o->keeper, o->folder, &o->claim));
    *owner = o;
    return WEFT_OK;
out:
    weft_bucket_owner_close(o);
    return status;
}

weft_status weft_bucket_owner_open_kept(const char *root, bool wait, weft_owner_keeper *keeper,
                                        weft_bucket_owner **owner)
{
    weft_bucket_owner *o;
    WEFT_TRY(make(root, NULL, root, &o));
    weft_status_code status = WEFT_OK;
    o->claims = true;
    WEFT_GO(settle(o, wait));
    o->keeper = keeper;
    o->lent = true;
    WEFT_GO(weft_owner_keeper_renew(keeper, o->folder, &o->claim));
    *owner = o;
    return WEFT_OK;
out:
    weft_bucket_owner_close(o);
    return status;
}

weft_status weft_bucket_owner_open_shared(const char *root, bool wait, weft_bucket_owner **owner)
{
    weft_bucket_owner *o;
    WEFT_TRY(make(root, NULL, root, &o));
    const weft_status_code status = settle(o, wait);
    if (status != WEFT_OK)
        weft_bucket_owner_close(o);
    else
        *owner = o;
    return status;
}

static weft_status look(weft_bucket_owner *o)
{
    pthread_mutex_lock(&o->lock);
    const weft_status_code status = settle(o, false);
    pthread_mutex_unlock(&o->lock);
    return status;
}

weft_status weft_bucket_owner_check(weft_bucket_owner *o)
{
    weft_owner_claim *all, other = {.seconds = o ? o->claim.seconds : 0};
    int64_t count;
    bool own = false, owned = false;
    if (!o || !o->claims)
        return o ? look(o) : WEFT_OK;
    WEFT_TRY(weft_owner_claim_list(o->storage, &all, &count));
    for (int64_t i = 0; i < count; i++) {
        own |= !strcmp(all[i].token, o->claim.token);
        if (!is_other(o, &all[i]) || !all[i].owns)
            continue;
        other = all[i];
        owned = true;
    }
    weft_free(all);
    if (own && !owned)
        return WEFT_OK;
    if (owned)
        return fail_owned(o, &other);
    return weft_error(WEFT_MSG_FOLDER_LOCKED, WEFT_AT(.file = o->location),
                      "another run has removed the claim of this run, which had no connection for "
                      "%.0f seconds, and has ended since. Start the command again.",
                      o->claim.seconds);
}

bool weft_bucket_owner_is_claim(const char *name)
{
    return strstr(name, WEFT_OWNER_FOLDER) != NULL;
}

void weft_bucket_owner_close(weft_bucket_owner *o)
{
    if (!o)
        return;
    if (o->lent)
        weft_owner_keeper_pause(o->keeper);
    else
        weft_owner_keeper_end(o->keeper);
    weft_error_copy *error = weft_error_save();
    if (o->process == getpid())
        (void)!withdraw(o); /* the next run finds that the process has ended */
    weft_error_restore(error);
    weft_free(error);
    weft_storage_close(o->storage);
    pthread_mutex_destroy(&o->lock);
    weft_free(o->folder);
    weft_free(o);
}
