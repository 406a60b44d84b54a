#include "data/heldout.h"

#include "base/fs.h"
#include "base/json.h"
#include "base/log.h"
#include "base/memory.h"
#include "storage/storage_json.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The content of split.json for one seed and share:
 *   {"seed": 0, "heldout": 0.05, "sources": {"b.mp4": true},
 *    "clips": {"a.mp4": [{"id": "a-000120", "frames": [120, 239]}]}}
 * sources: held out although their random number is not below the share. clips: held-out clips of
 * sources whose clips were split individually. */
typedef struct memory {
    json_t *sources, *clips; /* owned */
} memory;

static weft_status out_of_memory(void)
{
    return weft_no_memory("the split of the clips");
}

static bool same_seed(const weft_split_request *q, const json_t *entry)
{
    return json_integer_value(json_object_get(entry, "seed")) == q->seed;
}

static double share_of(const json_t *entry)
{
    return json_number_value(json_object_get(entry, "heldout"));
}

static const char *wrong_clips(const json_t *list)
{
    if (!json_is_array(list))
        return "\"clips\" must have the form {\"a.mp4\": [...]}";
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *one = json_array_get(list, i);
        if (!json_is_string(json_object_get(one, "id")) ||
            json_array_size(json_object_get(one, "frames")) != 2)
            return "a clip must have the form {\"id\": \"a-000120\", \"frames\": [120, 239]}";
    }
    return NULL;
}

/* The defect of an entry; NULL: none. An unknown entry must not be ignored: held-out clips would
 * move into the training set. */
static const char *wrong_entry(const json_t *entry)
{
    const char *source, *wrong = NULL;
    json_t *list;
    if (!json_is_integer(json_object_get(entry, "seed")) ||
        !json_is_number(json_object_get(entry, "heldout")))
        return "an entry has no \"seed\" and \"heldout\"";
    if (!json_is_object(json_object_get(entry, "sources")))
        return "\"sources\" must have the form {\"b.mp4\": true}";
    if (!json_is_object(json_object_get(entry, "clips")))
        return "\"clips\" must have the form {\"a.mp4\": [...]}";
    json_object_foreach(json_object_get(entry, "clips"), source, list)
    {
        wrong = wrong ? wrong : wrong_clips(list);
    }
    return wrong;
}

static weft_status check_file(const json_t *file, const char *path)
{
    const json_t *entries = json_object_get(file, "splits");
    const char *wrong = NULL;
    if (json_integer_value(json_object_get(file, "version")) != 1)
        return weft_error(WEFT_MSG_JSON_VALUE, WEFT_AT(.file = path, .key = "version"),
                          "the version must be 1");
    if (!json_is_array(entries))
        return weft_error(WEFT_MSG_JSON_VALUE, WEFT_AT(.file = path, .key = "splits"),
                          "expected a list");
    for (size_t i = 0; i < json_array_size(entries) && !wrong; i++)
        wrong = wrong_entry(json_array_get(entries, i));
    return wrong ? weft_error(WEFT_MSG_JSON_VALUE, WEFT_AT(.file = path, .key = "splits"), "%s",
                              wrong)
                 : WEFT_OK;
}

/* Loads split.json. *file stays NULL without one. */
static weft_status load_file(weft_storage *storage, const char *path, json_t **file)
{
    const weft_status_code status = weft_storage_json_load(storage, "split.json", file);
    if (status == WEFT_E_NOT_FOUND && weft_error_class() == WEFT_MSG_FILE_NOT_FOUND)
        return WEFT_OK;
    WEFT_TRY(status);
    return check_file(*file, path);
}

/* The entries of a folder's split.json; new reference, empty if the folder has none. */
static weft_status read_entries(const char *folder, json_t **entries)
{
    weft_storage *storage = NULL;
    json_t *file = NULL;
    char *path = weft_path_join(folder, "split.json");
    WEFT_TRY(WEFT_ALLOCATED(path, "the split of the clips"));
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_storage_open(folder, &storage));
    status = load_file(storage, path, &file);
    if (status != WEFT_OK)
        status = weft_error_add(status, "It lists the clips that were held out before. Repair "
                                        "it, or remove it for a new split.");
    WEFT_GO(status);
    *entries = json_incref(json_object_get(file, "splits"));
    if (!json_is_array(*entries)) {
        json_decref(*entries);
        *entries = json_array();
    }
    if (!*entries)
        WEFT_GO(out_of_memory());
out:
    json_decref(file);
    weft_storage_close(storage);
    weft_free(path);
    return status;
}

/* Takes over what an entry of the same seed and of no greater share remembers: a greater share
 * keeps what a smaller one held out. */
static weft_status recall(const weft_split_request *q, const json_t *entries, memory *m)
{
    for (size_t i = 0; i < json_array_size(entries); i++) {
        const json_t *entry = json_array_get(entries, i);
        const char *source;
        json_t *list;
        if (!same_seed(q, entry) || share_of(entry) > q->share)
            continue;
        json_object_update(m->sources, json_object_get(entry, "sources"));
        json_object_foreach(json_object_get(entry, "clips"), source, list)
        {
            if (!json_object_get(m->clips, source))
                json_object_set_new(m->clips, source, json_array());
            if (json_array_extend(json_object_get(m->clips, source), list) != 0)
                return out_of_memory();
        }
    }
    return WEFT_OK;
}

/* The entry of this seed and share becomes what is remembered now; others stay. */
static weft_status remember(const weft_split_request *q, const char *folder, const memory *m)
{
    json_t *entries, *file = NULL;
    weft_status_code status = WEFT_OK;
    weft_storage *storage;
    WEFT_TRY(weft_storage_open(folder, &storage));
    WEFT_GO(read_entries(folder, &entries));
    for (size_t i = json_array_size(entries); i-- > 0;) {
        const json_t *entry = json_array_get(entries, i);
        if (same_seed(q, entry) && !(share_of(entry) < q->share) && !(share_of(entry) > q->share))
            json_array_remove(entries, i);
    }
    json_array_append_new(entries,
                          json_pack("{s:I,s:f,s:O,s:O}", "seed", (json_int_t)q->seed, "heldout",
                                    q->share, "sources", m->sources, "clips", m->clips));
    file = json_pack("{s:i,s:o}", "version", 1, "splits", entries);
    status = file ? weft_storage_json_save(storage, "split.json", file) : out_of_memory();
out:
    json_decref(file);
    weft_storage_close(storage);
    return status;
}

static bool overlaps(const weft_split_clip *c, const json_t *frames)
{
    return c->first >= 0 && json_array_size(frames) == 2 &&
           c->first <= json_integer_value(json_array_get(frames, 1)) &&
           json_integer_value(json_array_get(frames, 0)) <= c->last;
}

/* Whether the clip is in the list or has frames of a listed clip. Curation may split a source video
 * differently later. */
static bool is_listed(const weft_split_clip *c, const json_t *list)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *one = json_array_get(list, i);
        const char *id = json_string_value(json_object_get(one, "id"));
        if ((id && !strcmp(id, c->id)) || overlaps(c, json_object_get(one, "frames")))
            return true;
    }
    return false;
}

static int by_kept(const void *a, const void *b)
{
    return strcmp(((const weft_split_copy *)a)->kept, ((const weft_split_copy *)b)->kept);
}

static bool is_held_out(const weft_split_request *q, const memory *m, const char *source,
                        double draw)
{
    return draw < q->share || json_object_get(m->sources, source);
}

/* Whether a rejected copy of the source was held out. */
static bool has_copy_held_out(const weft_split_request *q, const memory *m, const char *source)
{
    const weft_split_copy wanted = {.kept = source};
    const weft_split_copy *at =
        q->copies ? bsearch(&wanted, q->copy, (size_t)q->copies, sizeof wanted, by_kept) : NULL;
    while (at && at > q->copy && !by_kept(at - 1, &wanted))
        at--;
    for (; at && at < q->copy + q->copies && !by_kept(at, &wanted); at++)
        if (is_held_out(q, m, at->rejected, at->draw))
            return true;
    return false;
}

static bool one_source(const weft_split_clip *clip, int64_t count)
{
    for (int64_t i = 1; i < count; i++)
        if (strcmp(clip[i].source, clip[0].source) != 0)
            return false;
    return count > 1;
}

/* Holds out at least one clip: the clips of the source with the lowest random number above the
 * share. */
static void hold_out_one(weft_split_clip *clip, int64_t count, bool divided)
{
    int64_t least = 0;
    for (int64_t i = 0; i < count; i++) {
        if (clip[i].heldout)
            return;
        if (divided ? clip[i].own_draw < clip[least].own_draw : clip[i].draw < clip[least].draw)
            least = i;
    }
    for (int64_t i = 0; i < count; i++)
        clip[i].heldout = divided ? i == least : !strcmp(clip[i].source, clip[least].source);
}

/* Adds the exceptions of this split to split.json. */
static weft_status note(const weft_split_request *q, const weft_split_clip *clip, int64_t count,
                        const char *divided, memory *m)
{
    if (divided && !json_object_get(m->clips, divided))
        json_object_set_new(m->clips, divided, json_array());
    for (int64_t i = 0; i < count; i++) {
        const weft_split_clip *c = &clip[i];
        json_t *list = json_object_get(m->clips, c->source);
        if (!c->heldout)
            continue;
        if (!list && c->draw >= q->share)
            json_object_set_new(m->sources, c->source, json_true());
        if (list && !is_listed(c, list) &&
            json_array_append_new(list, json_pack("{s:s,s:[I,I]}", "id", c->id, "frames",
                                                  (json_int_t)c->first, (json_int_t)c->last)) != 0)
            return out_of_memory();
    }
    return WEFT_OK;
}

static int64_t sources_of(const weft_split_clip *clip, int64_t count, bool heldout)
{
    json_t *seen = json_object();
    for (int64_t i = 0; i < count; i++)
        if (clip[i].heldout || !heldout)
            json_object_set_new(seen, clip[i].source, json_true());
    const int64_t sources = (int64_t)json_object_size(seen);
    json_decref(seen);
    return sources;
}

static void report_share(const weft_split_request *q, const weft_split_clip *clip, int64_t count)
{
    int64_t heldout = 0;
    for (int64_t i = 0; i < count; i++)
        heldout += clip[i].heldout;
    const double wanted = q->share * (double)count;
    if (count < 2 || fabs((double)heldout - wanted) <= fmax(1, wanted / 2))
        return;
    weft_warning(WEFT_MSG_HELDOUT_CHANGED, WEFT_AT(.key = "heldout", WEFT_NUMBER(q->share)),
                 "%" PRId64 " of %" PRId64
                 " clips (%.0f %%) are held out, and %g %% were requested. All clips "
                 "of a source video are on one side, and %" PRId64 " of %" PRId64
                 " source videos are held out. "
                 "More source videos bring the share closer",
                 heldout, count, 100 * (double)heldout / (double)count, 100 * q->share,
                 sources_of(clip, count, true), sources_of(clip, count, false));
}

/* A smaller share than before in the same folder of shards moves clips into training, as asked. */
static void report_smaller(const weft_split_request *q, const json_t *entries)
{
    for (size_t i = 0; i < json_array_size(entries); i++)
        if (same_seed(q, json_array_get(entries, i)) &&
            share_of(json_array_get(entries, i)) > q->share) {
            weft_warning(WEFT_MSG_HELDOUT_CHANGED,
                         WEFT_AT(.file = q->out, .key = "heldout", WEFT_NUMBER(q->share)),
                         "the share is %g and was %g in this folder; clips that were held out move "
                         "into training",
                         q->share, share_of(json_array_get(entries, i)));
            return;
        }
}

static void choose(const weft_split_request *q, weft_split_clip *clip, int64_t count,
                   const char *divided, const memory *m)
{
    for (int64_t i = 0; i < count; i++) {
        weft_split_clip *c = &clip[i];
        const json_t *list = json_object_get(m->clips, c->source);
        if (list || (divided && !json_object_get(m->sources, c->source)))
            c->heldout = c->own_draw < q->share || is_listed(c, list);
        else
            c->heldout =
                is_held_out(q, m, c->source, c->draw) || has_copy_held_out(q, m, c->source);
    }
    if (count > 1)
        hold_out_one(clip, count, divided != NULL);
}

weft_status weft_split_choose(const weft_split_request *q, weft_split_clip *clip, int64_t count)
{
    memory m = {json_object(), json_object()};
    json_t *here = NULL, *source = NULL;
    weft_status_code status = WEFT_ALLOCATED(m.sources && m.clips, "the split of the clips");
    WEFT_GO(status);
    WEFT_GO(read_entries(q->out, &here));
    report_smaller(q, here);
    if (q->share > 0) {
        WEFT_GO(read_entries(q->in, &source));
        WEFT_GO(recall(q, here, &m));
        WEFT_GO(recall(q, source, &m));
        const bool only = one_source(clip, count);
        const char *divided =
            only && !json_object_get(m.sources, clip[0].source) ? clip[0].source : NULL;
        choose(q, clip, count, divided, &m);
        report_share(q, clip, count);
        WEFT_GO(note(q, clip, count, divided, &m));
    }
    WEFT_GO(remember(q, q->out, &m));
    if (json_object_size(m.sources) + json_object_size(m.clips) > 0 &&
        remember(q, q->in, &m) != WEFT_OK)
        weft_debug("%s; another folder of shards may get another split", weft_error_message());
out:
    json_decref(here);
    json_decref(source);
    json_decref(m.sources);
    json_decref(m.clips);
    return status;
}
