#include "train/checkpoint/checkpoint.h"

#include "base/fs.h"
#include "base/hash.h"
#include "base/hex.h"
#include "base/log.h"
#include "comm/comm_world.h"
#include "exec/store/shard_files.h"
#include "exec/store/weights.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* A checkpoint found in the folder. */
typedef struct seen {
    int64_t step;
    bool whole;
} seen;

struct weft_checkpoints {
    weft_checkpoint_spec spec;
    int rank, ranks;
    char folder[400]; /* <run>/checkpoints */
    weft_part_set set[WEFT_CHECKPOINT_MAX_PARTS + 2];
    char prefix[WEFT_CHECKPOINT_MAX_PARTS][64];
    int sets;
    int64_t last; /* step of the last intact checkpoint; -1: none */
    double seconds;
    seen *seen; /* verified or written by this process */
    int64_t seen_count, seen_capacity;
    /* State of the checkpoint that is being written: */
    weft_part_stream *stream;
    json_t *state;
    int64_t step;
    pthread_t thread;
    bool writing;
    double took; /* seconds of the last write */
    atomic_bool abandon;
    weft_status_code status;
    weft_error_copy *error; /* error of `status` */
};

/* ---- files --------------------------------------------------------------------------------- */

static weft_status checksum(const char *path, char text[WEFT_HEX_BYTES])
{
    XXH3_state_t state;
    XXH3_64bits_reset(&state);
    WEFT_TRY(weft_hash_file(&state, path));
    weft_hex_print(XXH3_64bits_digest(&state), text);
    return WEFT_OK;
}

static bool is_note(const char *name)
{
    return !strncmp(name, "note-", 5);
}

/* Adds {"transformer/config.json": "0123456789abcdef", ...} for the files whose names contain
 * `own`; NULL: for all files without a checksum. */
static weft_status add_checksums(const char *folder, const char *own, json_t *checksums)
{
    weft_names names = {0};
    WEFT_TRY(weft_list_dir(folder, true, &names));
    weft_status_code status = WEFT_OK;
    for (int64_t i = 0; i < names.count; i++) {
        const char *name = names.name[i];
        char text[WEFT_HEX_BYTES];
        if (!strcmp(name, "state.json") || is_note(name) || json_object_get(checksums, name) ||
            (own && !strstr(name, own)))
            continue;
        char *path = weft_path_join(folder, name);
        status = path ? checksum(path, text) : weft_no_memory("%s", folder);
        weft_free(path);
        WEFT_GO(status);
        json_object_set_new(checksums, name, json_string(text));
    }
out:
    weft_names_free(&names);
    return status;
}

static void sync_folder(const char *path)
{
    const int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return;
    fsync(fd);
    close(fd);
}

static void nap(double seconds)
{
    const struct timespec time = {.tv_sec = (time_t)seconds,
                                  .tv_nsec = (long)(1e9 * (seconds - (double)(time_t)seconds))};
    nanosleep(&time, NULL);
}

/* ---- state.json ---------------------------------------------------------------------------- */

/* Checksum of all keys except "self". */
static weft_status state_checksum(const json_t *state, const char *where, char text[WEFT_HEX_BYTES])
{
    json_t *rest = json_copy((json_t *)(uintptr_t)state);
    json_object_del(rest, "self");
    char *line = rest ? json_dumps(rest, JSON_COMPACT | JSON_SORT_KEYS) : NULL;
    json_decref(rest);
    WEFT_TRY(WEFT_ALLOCATED(line, "%s", where));
    weft_hex_print(XXH3_64bits(line, strlen(line)), text);
    free(line);
    return WEFT_OK;
}

static weft_status save_state(const char *path, json_t *state)
{
    char text[WEFT_HEX_BYTES];
    json_object_set_new(state, "format", json_integer(WEFT_CHECKPOINT_FORMAT));
    WEFT_TRY(state_checksum(state, path, text));
    json_object_set_new(state, "self", json_string(text));
    return weft_json_save(path, state);
}

/* Step of a checkpoint's folder name; -1: not a checkpoint. */
static int64_t step_of(const char *name)
{
    char *end;
    if (strncmp(name, "step-", 5) || name[5] < '0' || name[5] > '9')
        return -1;
    const int64_t step = strtoll(name + 5, &end, 10);
    return *end ? -1 : step;
}

/* Checks the format, the own checksum and the step of state.json. `wanted`: step in the folder's
 * name. */
static weft_status check_state(const json_t *state, int64_t wanted, const char *path)
{
    int64_t format, step;
    char text[WEFT_HEX_BYTES];
    WEFT_TRY(weft_json_get_i64_or(state, "format", path, 1, &format));
    if (format < 1 || format > WEFT_CHECKPOINT_FORMAT)
        return weft_error(WEFT_MSG_FORMAT_UNKNOWN,
                          WEFT_AT(.file = path, .key = "format", WEFT_NUMBER(format)),
                          "the format is %" PRId64 "; this version of weft reads 1 to %d", format,
                          WEFT_CHECKPOINT_FORMAT);
    const char *self = json_string_value(json_object_get(state, "self"));
    if (format > 1 || self) {
        WEFT_TRY(state_checksum(state, path, text));
        if (!self || strcmp(self, text) != 0)
            return weft_error(WEFT_MSG_CHECKPOINT_DAMAGED, WEFT_AT(.file = path),
                              "damaged: the checksum of the file is %s, and %s was written", text,
                              self ? self : "none");
    }
    WEFT_TRY(weft_json_get_i64(state, "step", path, &step));
    if (step != wanted)
        return weft_error(
            WEFT_MSG_CHECKPOINT_DAMAGED, WEFT_AT(.file = path, .key = "step", WEFT_NUMBER(step)),
            "damaged: step %" PRId64 " in the checkpoint of step %" PRId64, step, wanted);
    if (!json_is_object(json_object_get(state, "checksums")))
        return weft_error(WEFT_MSG_CHECKPOINT_DAMAGED, WEFT_AT(.file = path, .key = "checksums"),
                          "damaged: the file has no checksums");
    return WEFT_OK;
}

/* Checks that every file that state.json names exists and has its checksum. With `ranks` ranks,
 * rank `rank` reads every `ranks`th file. */
static weft_status verify_folder(const char *folder, int rank, int ranks, json_t **out)
{
    char path[900], text[20];
    json_t *state, *sum;
    const char *name;
    int64_t index = 0;
    snprintf(path, sizeof path, "%s/state.json", folder);
    WEFT_TRY(weft_json_load(path, &state));
    weft_status_code status = WEFT_OK;
    WEFT_GO(check_state(state, step_of(weft_path_base(folder)), path));
    json_object_foreach(json_object_get(state, "checksums"), name, sum)
    {
        if (index++ % ranks != rank)
            continue;
        snprintf(path, sizeof path, "%s/%s", folder, name);
        WEFT_GO(checksum(path, text));
        const char *written = json_string_value(sum) ? json_string_value(sum) : "none";
        if (strcmp(written, text) != 0)
            WEFT_GO(weft_error(WEFT_MSG_CHECKPOINT_DAMAGED, WEFT_AT(.file = path),
                               "damaged: the checksum is %s, and %s was written", text, written));
    }
    if (out)
        *out = json_incref(state);
out:
    json_decref(state);
    return status;
}

/* ---- pruning ------------------------------------------------------------------------------- */

static void remember(weft_checkpoints *c, int64_t step, bool whole)
{
    for (int64_t i = 0; i < c->seen_count; i++)
        if (c->seen[i].step == step) {
            c->seen[i].whole = whole;
            return;
        }
    if (weft_grow((void **)&c->seen, c->seen_count, &c->seen_capacity, sizeof *c->seen) == WEFT_OK)
        c->seen[c->seen_count++] = (seen){step, whole};
}

/* Whether a checkpoint is intact: the result known to this process, or else the result of reading
 * its files. */
static bool is_whole(weft_checkpoints *c, int64_t step, const char *path)
{
    for (int64_t i = 0; i < c->seen_count; i++)
        if (c->seen[i].step == step)
            return c->seen[i].whole;
    const bool whole = verify_folder(path, 0, 1, NULL) == WEFT_OK;
    if (!whole)
        weft_warn_error(WEFT_MSG_CHECKPOINT_SKIPPED,
                        "the checkpoint is kept, and checkpoint.keep_latest does not count it");
    remember(c, step, whole);
    return whole;
}

/* Renames the folder to a hidden name before it is removed, so that a partly removed checkpoint
 * never has a final name. */
static weft_status remove_checkpoint(const weft_checkpoints *c, const char *name)
{
    char path[800], gone[800];
    snprintf(path, sizeof path, "%s/%s", c->folder, name);
    snprintf(gone, sizeof gone, "%s/.gone-%s", c->folder, name[0] == '.' ? name + 1 : name);
    if (name[0] == '.')
        return weft_remove_tree(path);
    WEFT_TRY(weft_remove_tree(gone));
    if (rename(path, gone) != 0)
        return weft_error_errno(WEFT_AT(.file = path), "cannot rename the folder");
    sync_folder(c->folder);
    return weft_remove_tree(gone);
}

/* Removes all intact checkpoints but the newest `keep_latest`, and the remains of killed writers.
 * Damaged checkpoints are neither counted nor removed. */
static void prune(weft_checkpoints *c)
{
    weft_names names = {0};
    if (weft_list_dir(c->folder, false, &names) != WEFT_OK)
        return;
    int64_t whole = 0;
    for (int64_t i = names.count - 1; i >= 0; i--) {
        const char *name = names.name[i];
        char path[800];
        snprintf(path, sizeof path, "%s/%s", c->folder, name);
        const int64_t step = step_of(name);
        bool unwanted = !strncmp(name, ".step-", 6) || !strncmp(name, ".gone-step-", 11);
        if (step >= 0 && is_whole(c, step, path))
            unwanted = ++whole > c->spec.keep_latest;
        if (unwanted && remove_checkpoint(c, name) != WEFT_OK)
            weft_warn_error(WEFT_MSG_SAVE_FAILED, "the old checkpoint stays");
    }
    weft_names_free(&names);
}

/* ---- writing ------------------------------------------------------------------------------- */

weft_status weft_part_save(weft_store *store, const weft_graph *graph, weft_comm *comm,
                           const weft_checkpoint_part *part, const weft_stored_tensor *also,
                           const char *folder, weft_dtype dtype)
{
    char prefix[64], path[700];
    snprintf(prefix, sizeof prefix, "%s.", part->scope);
    snprintf(path, sizeof path, "%s/config.json", folder);
    const bool writes = !comm || weft_comm_rank(comm) == 0;
    if (writes)
        WEFT_TRY(weft_make_dirs(folder));
    WEFT_TRY(weft_weights_save_changed(store, comm, graph, prefix,
                                       (weft_weights_change){.also = also}, folder, part->stem,
                                       dtype, (int64_t)4 << 30));
    return writes ? weft_json_save(path, part->config) : WEFT_OK;
}

static void hidden_folder(const weft_checkpoints *c, char path[500])
{
    snprintf(path, 500, "%s/.step-%08" PRId64, c->folder, c->step);
}

/* Creates the hidden folder that every rank writes into. */
static weft_status prepare_folder(const weft_checkpoints *c)
{
    char folder[500], path[600];
    hidden_folder(c, folder);
    WEFT_TRY(weft_remove_tree(folder));
    WEFT_TRY(weft_make_dirs(folder));
    for (int i = 0; i < c->spec.parts; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, c->spec.part[i].scope);
        WEFT_TRY(weft_make_dirs(path));
        snprintf(path, sizeof path, "%s/%s/config.json", folder, c->spec.part[i].scope);
        WEFT_TRY(weft_json_save(path, c->spec.part[i].config));
    }
    return WEFT_OK;
}

/* Writes a note for rank 0 that lists the files of this rank, or the error that prevented them. */
static weft_status leave_note(const weft_checkpoints *c, const char *folder)
{
    char path[600], own[32];
    json_t *note = json_object(), *checksums = json_object();
    snprintf(own, sizeof own, "-rank-%05d-", c->rank);
    const weft_status_code status =
        c->status != WEFT_OK ? c->status : add_checksums(folder, own, checksums);
    if (status != WEFT_OK)
        json_object_set_new(note, "error", json_string(weft_error_message()));
    json_object_set_new(note, "checksums", checksums);
    snprintf(path, sizeof path, "%s/note-%05d.json", folder, c->rank);
    const weft_status_code saved = weft_json_save(path, note);
    json_decref(note);
    return weft_status_first(status, saved);
}

static int64_t folder_bytes(const char *folder)
{
    weft_names names = {0};
    int64_t bytes = 0;
    if (weft_list_dir(folder, true, &names) != WEFT_OK)
        return 0;
    for (int64_t i = 0; i < names.count; i++) {
        char path[1200];
        struct stat st;
        snprintf(path, sizeof path, "%s/%s", folder, names.name[i]);
        bytes += stat(path, &st) == 0 ? (int64_t)st.st_size + 1 : 0;
    }
    weft_names_free(&names);
    return bytes;
}

/* Waits until the note of `rank` exists. Fails if the rank's process exits or if no file grows for
 * `deadline` seconds. */
static weft_status await_note(const weft_checkpoints *c, const char *folder, int rank)
{
    char path[600], who[200] = "";
    const double deadline = c->spec.deadline > 0 ? c->spec.deadline : 120;
    double since = weft_now(), asked = since;
    int64_t bytes = 0;
    snprintf(path, sizeof path, "%s/note-%05d.json", folder, rank);
    for (double pause = 0.001; !weft_path_exists(path); pause = pause < 0.05 ? 2 * pause : 0.05) {
        if (atomic_load(&c->abandon))
            return weft_error(WEFT_MSG_INTERRUPTED, WEFT_NOWHERE,
                              "the run has ended, and the checkpoint is not completed");
        if (weft_now() - asked > 0.5) {
            asked = weft_now();
            const int64_t now = folder_bytes(folder);
            since = now != bytes ? asked : since;
            bytes = now;
            if (!weft_comm_alive(c->spec.comm, rank, who) && !weft_path_exists(path))
                return weft_error(WEFT_MSG_RANK_FAILED, WEFT_AT(WEFT_RANK(rank)),
                                  "rank %d (%s) ended before it wrote its part", rank, who);
        }
        if (weft_now() - since > deadline)
            return weft_error(
                WEFT_MSG_RANK_FAILED, WEFT_AT(.file = c->folder, WEFT_RANK(rank)),
                "rank %d has written nothing for %.0f s; check that all ranks see this folder",
                rank, deadline);
        nap(pause);
    }
    return WEFT_OK;
}

static weft_status take_note(const weft_checkpoints *c, const char *folder, int rank,
                             json_t *checksums)
{
    char path[600];
    json_t *note;
    WEFT_TRY(await_note(c, folder, rank));
    snprintf(path, sizeof path, "%s/note-%05d.json", folder, rank);
    WEFT_TRY(weft_json_load(path, &note));
    weft_status_code status = WEFT_OK;
    const char *error = json_string_value(json_object_get(note, "error"));
    if (error)
        status = weft_error(WEFT_MSG_FILE_IO, WEFT_AT(WEFT_RANK(rank)), "rank %d: %s", rank, error);
    else
        json_object_update(checksums, json_object_get(note, "checksums"));
    json_decref(note);
    WEFT_TRY(status);
    return unlink(path) == 0 ? WEFT_OK
                             : weft_error_errno(WEFT_AT(.file = path), "cannot remove the file");
}

/* Completes the checkpoint on rank 0 after its own share is written. */
static weft_status complete(weft_checkpoints *c, const char *folder)
{
    char path[600];
    json_t *checksums = json_object();
    json_object_set_new(c->state, "checksums", checksums);
    for (int rank = 1; rank < c->ranks; rank++)
        WEFT_TRY(take_note(c, folder, rank, checksums));
    for (int i = 0; i < c->sets && c->ranks > 1; i++)
        WEFT_TRY(weft_part_set_index(&c->set[i], folder));
    snprintf(path, sizeof path, "%s/config.yaml", folder);
    WEFT_TRY(
        weft_file_write_atomic(path, c->spec.config_yaml, (int64_t)strlen(c->spec.config_yaml)));
    WEFT_TRY(add_checksums(folder, NULL, checksums));
    snprintf(path, sizeof path, "%s/state.json", folder);
    WEFT_TRY(save_state(path, c->state));
    for (int i = 0; i < c->spec.parts; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, c->spec.part[i].scope);
        sync_folder(path);
    }
    sync_folder(folder);
    return WEFT_OK;
}

static weft_status give_name(weft_checkpoints *c, const char *folder)
{
    char final[512], name[32];
    snprintf(name, sizeof name, "step-%08" PRId64, c->step);
    snprintf(final, sizeof final, "%s/%s", c->folder, name);
    if (weft_path_exists(final))
        WEFT_TRY(remove_checkpoint(c, name));
    if (rename(folder, final) != 0)
        return weft_error_errno(WEFT_AT(.file = final),
                                "cannot rename the folder of the checkpoint");
    sync_folder(c->folder);
    remember(c, c->step, true);
    prune(c);
    return WEFT_OK;
}

/* Only another run that writes to the bucket ends this run: no later send could succeed. */
static weft_status send_copy(const weft_checkpoints *c)
{
    const weft_status_code status = weft_working_copy_send(c->spec.copy);
    if (status == WEFT_OK || weft_error_class() == WEFT_MSG_FOLDER_LOCKED)
        return status;
    weft_warn_error(WEFT_MSG_STORAGE_SEND, "the next checkpoint sends what is missing");
    return WEFT_OK;
}

static weft_status write_files(weft_checkpoints *c, const char *folder)
{
    c->status = weft_part_stream_drain(c->stream, folder);
    if (c->rank > 0)
        return leave_note(c, folder);
    WEFT_TRY(c->status);
    WEFT_TRY(complete(c, folder));
    WEFT_TRY(give_name(c, folder));
    return c->spec.copy ? send_copy(c) : WEFT_OK;
}

static weft_status write_share(weft_checkpoints *c)
{
    char folder[500];
    hidden_folder(c, folder);
    if (write_files(c, folder) == WEFT_OK)
        return WEFT_OK;
    weft_error_copy *why = weft_error_save(); /* removing must not hide the error */
    if (c->rank == 0 && weft_remove_tree(folder) != WEFT_OK)
        weft_warn_error(WEFT_MSG_SAVE_FAILED, "the incomplete checkpoint stays");
    const weft_status_code code = weft_error_restore(why);
    weft_free(why);
    return weft_error_add(code, "The checkpoint of step %" PRId64 " is not written", c->step);
}

static void *writer_main(void *user)
{
    weft_checkpoints *c = user;
    const double began = weft_now();
    c->status = write_share(c);
    c->took = weft_now() - began;
    weft_free(c->error);
    c->error = c->status == WEFT_OK ? NULL : weft_error_save();
    return NULL;
}

/* Marks this rank as busy, so that other ranks wait without a timeout for its disk. */
static void say_busy(const weft_checkpoints *c)
{
    char what[64];
    snprintf(what, sizeof what, "writing the checkpoint of step %" PRId64, c->step);
    weft_comm_set_busy(c->spec.comm, what);
}

static void say_done(const weft_checkpoints *c)
{
    weft_comm_set_busy(c->spec.comm, NULL);
}

/* Waits for the write in progress and returns its status. Its error is c->error. */
static weft_status join(weft_checkpoints *c)
{
    if (!c->writing)
        return WEFT_OK;
    say_busy(c);
    pthread_join(c->thread, NULL);
    say_done(c);
    c->writing = false;
    weft_part_stream_free(c->stream);
    c->stream = NULL;
    json_decref(c->state);
    c->state = NULL;
    if (c->status == WEFT_OK)
        c->last = c->step;
    c->seconds = c->took;
    return c->status;
}

weft_status weft_checkpoints_wait(weft_checkpoints *c)
{
    const weft_status_code status = join(c);
    return status == WEFT_OK ? WEFT_OK : weft_error_restore(c->error);
}

/* Collective. Fails on all ranks if any rank failed. */
static weft_status agree(const weft_checkpoints *c, weft_status_code status)
{
    char work[64];
    if (c->ranks == 1)
        return status;
    snprintf(work, sizeof work, "write the checkpoint of step %" PRId64, c->step);
    return weft_comm_agree(c->spec.comm, status, work);
}

static weft_status begin_save(weft_checkpoints *c)
{
    const weft_part_writer who = {.rank = c->rank,
                                  .ranks = c->ranks,
                                  .shard_bytes = c->spec.shard_bytes,
                                  .staging = c->spec.staging};
    if (c->rank == 0 && !c->state)
        return weft_no_memory("a checkpoint");
    WEFT_TRY(weft_part_stream_create(c->spec.store, c->set, c->sets, &who, &c->stream));
    if (c->rank != 0)
        return WEFT_OK;
    say_busy(c);
    const weft_status_code status = prepare_folder(c);
    say_done(c);
    return status;
}

weft_status weft_checkpoints_save(weft_checkpoints *c, int64_t step, json_t *state)
{
    const weft_status_code waited = weft_checkpoints_wait(c);
    weft_status_code status = WEFT_OK;
    c->state = state;
    c->step = step;
    WEFT_GO(agree(c, waited != WEFT_OK ? waited : begin_save(c)));
    if (pthread_create(&c->thread, NULL, writer_main, c) != 0)
        WEFT_GO(weft_no_memory("the thread that writes the checkpoint of step %" PRId64, step));
    c->writing = true;
    say_busy(c);
    status = weft_part_stream_feed(c->stream);
    say_done(c);
    return status;
out:
    weft_part_stream_free(c->stream);
    c->stream = NULL;
    json_decref(c->state);
    c->state = NULL;
    return status;
}

/* ---- reading ------------------------------------------------------------------------------- */

/* Collective. Checks whether the checkpoint `name` is intact. `why` receives the damage that this
 * rank found. */
static weft_status try_checkpoint(weft_checkpoints *c, const char *name, json_t **state,
                                  weft_buf *why, bool *whole)
{
    char path[800];
    snprintf(path, sizeof path, "%s/%s", c->folder, name);
    weft_comm_set_busy(c->spec.comm, "verifying a checkpoint");
    double bad = verify_folder(path, c->rank, c->ranks, state) != WEFT_OK;
    say_done(c);
    if (bad > 0) {
        weft_buf_printf(why, "\n  %s", weft_error_message());
        weft_warn_error(WEFT_MSG_CHECKPOINT_SKIPPED, "an older checkpoint is used if there is one");
    }
    if (c->ranks > 1)
        WEFT_TRY(weft_comm_sum(c->spec.comm, &bad, 1));
    *whole = bad == 0;
    remember(c, step_of(name), *whole);
    if (!*whole) {
        json_decref(*state);
        *state = NULL;
    }
    return WEFT_OK;
}

/* Collective. Lists the folder in `names` and counts its checkpoints. Fails if the ranks see
 * different checkpoints. */
static weft_status list_checkpoints(weft_checkpoints *c, weft_names *names, int64_t *count)
{
    WEFT_TRY(weft_list_dir(c->folder, false, names));
    int64_t n = 0;
    XXH64_hash_t hash = 0;
    for (int64_t i = names->count - 1; i >= 0; i--)
        if (step_of(names->name[i]) >= 0) {
            n++;
            hash = XXH3_64bits_withSeed(names->name[i], strlen(names->name[i]), hash);
        }
    double mine = (double)(hash >> 24), sum = mine; /* 40 bits: sums over ranks are exact */
    if (c->ranks > 1)
        WEFT_TRY(weft_comm_sum(c->spec.comm, &sum, 1));
    /* Ranks that see different folders would load different models. */
    if (sum != mine * c->ranks)
        return weft_error(
            WEFT_MSG_RANKS_DISAGREE, WEFT_AT(.file = c->folder),
            "the ranks see different checkpoints; the folder must be shared by all of them");
    *count = n;
    return WEFT_OK;
}

weft_status weft_checkpoints_read_state(const char *run, json_t **state)
{
    char folder[512], path[800];
    weft_names names = {0};
    json_t *read = NULL;
    *state = NULL;
    snprintf(folder, sizeof folder, "%.490s/checkpoints", run);
    if (!weft_path_is_dir(folder))
        return WEFT_OK;
    WEFT_TRY(weft_list_dir(folder, false, &names));
    for (int64_t i = names.count - 1; i >= 0 && !*state; i--) {
        const int64_t step = step_of(names.name[i]);
        snprintf(path, sizeof path, "%s/%.200s/state.json", folder, names.name[i]);
        if (step < 0 || weft_json_load(path, &read) != WEFT_OK)
            continue;
        if (check_state(read, step, path) == WEFT_OK)
            *state = json_incref(read);
        json_decref(read);
    }
    weft_names_free(&names);
    return WEFT_OK;
}

weft_status weft_checkpoints_load(weft_checkpoints *c, json_t **state, char path[512])
{
    weft_names names = {0};
    weft_buf why = {0};
    int64_t count = 0;
    *state = NULL;
    weft_status_code status = WEFT_OK;
    bool whole = false;
    WEFT_GO(list_checkpoints(c, &names, &count));
    for (int64_t i = names.count - 1; i >= 0 && !whole; i--) {
        if (step_of(names.name[i]) < 0)
            continue;
        snprintf(path, 512, "%s/%s", c->folder, names.name[i]);
        WEFT_GO(try_checkpoint(c, names.name[i], state, &why, &whole));
        if (!whole)
            continue;
        if (c->spec.check_state)
            WEFT_GO(c->spec.check_state(c->spec.check_state_user, *state, path));
        for (int k = 0; k < c->sets; k++)
            WEFT_GO(weft_part_set_load(c->spec.store, &c->set[k], path));
        c->last = step_of(names.name[i]);
    }
    if (count > 0 && !whole)
        WEFT_GO(
            weft_error(WEFT_MSG_CHECKPOINT_DAMAGED, WEFT_AT(.file = c->folder, WEFT_NUMBER(count)),
                       "none of %" PRId64
                       " checkpoints is intact:%s\nRepair a checkpoint. To start from scratch, "
                       "move %s or set another out",
                       count, why.data ? why.data : " (other ranks print the causes)", c->folder));
out:
    if (status != WEFT_OK) {
        json_decref(*state);
        *state = NULL;
    }
    weft_buf_free(&why);
    weft_names_free(&names);
    return status;
}

/* ---- lifetime ------------------------------------------------------------------------------ */

static void list_sets(weft_checkpoints *c)
{
    for (int i = 0; i < c->spec.parts; i++) {
        snprintf(c->prefix[i], sizeof c->prefix[i], "%s.", c->spec.part[i].scope);
        c->set[c->sets++] = (weft_part_set){.folder = c->spec.part[i].scope,
                                            .stem = c->spec.part[i].stem,
                                            .prefix = c->prefix[i],
                                            .strip = true,
                                            .trained = c->spec.part[i].partly_trained};
    }
    c->set[c->sets++] = (weft_part_set){.folder = "", .stem = "optimizer", .prefix = "adamw."};
    c->set[c->sets++] = (weft_part_set){.folder = "", .stem = "ema", .prefix = "ema."};
}

weft_status weft_checkpoints_open(const weft_checkpoint_spec *spec, weft_checkpoints **out)
{
    weft_checkpoints *c;
    WEFT_TRY(WEFT_NEW(c, 1, "the checkpoint"));
    c->spec = *spec;
    c->ranks = spec->comm ? weft_comm_ranks(spec->comm) : 1;
    c->rank = spec->comm ? weft_comm_rank(spec->comm) : 0;
    c->spec.staging = spec->staging > 0 ? spec->staging : WEFT_CHECKPOINT_STAGING;
    c->spec.shard_bytes = spec->shard_bytes > 0 ? spec->shard_bytes : (int64_t)4 << 30;
    c->last = -1;
    list_sets(c);
    weft_status_code status = WEFT_OK;
    if (snprintf(c->folder, sizeof c->folder, "%s/checkpoints", spec->run) >= (int)sizeof c->folder)
        WEFT_GO(weft_error(WEFT_MSG_FILE_NAME, WEFT_AT(.file = spec->run), "the path is too long"));
    WEFT_GO(weft_make_dirs(c->folder));
    *out = c;
    return WEFT_OK;
out:
    weft_free(c);
    return status;
}

weft_status weft_checkpoints_bytes(const weft_checkpoint_spec *spec, int64_t *bytes)
{
    weft_checkpoints c = {.spec = *spec};
    const int64_t staging = spec->staging > 0 ? spec->staging : WEFT_CHECKPOINT_STAGING;
    const weft_part_writer who = {.rank = spec->comm ? weft_comm_rank(spec->comm) : spec->rank,
                                  .ranks = spec->comm    ? weft_comm_ranks(spec->comm)
                                           : spec->ranks ? spec->ranks
                                                         : 1,
                                  .shard_bytes = (int64_t)4 << 30,
                                  .staging = 1};
    list_sets(&c);
    WEFT_TRY(weft_part_stream_create(spec->store, c.set, c.sets, &who, &c.stream));
    *bytes = weft_part_stream_bytes(c.stream);
    *bytes = *bytes < staging ? *bytes : staging;
    weft_part_stream_free(c.stream);
    return WEFT_OK;
}

void weft_checkpoints_close(weft_checkpoints *c, bool abandon)
{
    if (!c)
        return;
    atomic_store(&c->abandon, abandon);
    if (join(c) != WEFT_OK && !abandon) {
        weft_error_copy *last = weft_error_save(); /* the caller's error stays the last one */
        weft_error_restore(c->error);
        weft_warn_error(WEFT_MSG_SAVE_FAILED, "the run ends without this checkpoint");
        weft_error_restore(last);
        weft_free(last);
    }
    weft_free(c->error);
    weft_part_stream_free(c->stream);
    weft_free(c->seen);
    weft_free(c);
}

int64_t weft_checkpoints_last(const weft_checkpoints *c)
{
    return c->last;
}

double weft_checkpoints_seconds(const weft_checkpoints *c)
{
    return c->seconds;
}
