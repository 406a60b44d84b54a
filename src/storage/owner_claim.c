#include "storage/owner_claim.h"

#include "base/config.h"
#include "base/hex.h"
#include "base/json.h"
#include "storage/storage_json.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <xxhash.h>

/* Start of a process in ticks since the start of the machine; 0: unknown. */
static int64_t process_start(long pid)
{
    enum { FIELD = 22 };
    char path[64], line[1024];
    snprintf(path, sizeof path, "/proc/%ld/stat", pid);
    FILE *file = fopen(path, "re");
    if (!file)
        return 0;
    const size_t n = fread(line, 1, sizeof line - 1, file);
    fclose(file);
    line[n] = 0;
    char *at = strrchr(line, ')'); /* the name before may have blanks; fields 3, 4, ... follow */
    for (int field = 2; at && field < FIELD; field++)
        at = strchr(at + 1, ' ');
    return at ? strtoll(at, NULL, 10) : 0;
}

/* Text that is the same in all processes whose ids this process can look up. */
static void read_machine(char machine[96])
{
    char boot[48] = "", space[40] = "";
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");
    if (file && !fgets(boot, sizeof boot, file))
        boot[0] = 0;
    if (file)
        fclose(file);
    boot[strcspn(boot, "\n")] = 0;
    const ssize_t n = readlink("/proc/self/ns/pid", space, sizeof space - 1);
    space[n > 0 ? n : 0] = 0;
    snprintf(machine, 96, "%s %s", boot, space);
}

static weft_status read_seconds(double *seconds)
{
    const char *text = getenv("WEFT_OWNER_SECONDS");
    *seconds = 60;
    if (text && *text && (!weft_parse_f64(text, seconds) || *seconds < 0.1 || *seconds > 86400))
        return weft_error(WEFT_MSG_STORAGE_SETTINGS,
                          WEFT_AT(.key = "WEFT_OWNER_SECONDS", .value = text),
                          "\"%s\" is not a number of seconds from 0.1 to 86400", text);
    return WEFT_OK;
}

weft_status weft_owner_claim_make(weft_owner_claim *c)
{
    struct timespec now;
    struct tm tm;
    char hex[WEFT_HEX_BYTES];
    *c = (weft_owner_claim){.pid = getpid(), .start = process_start(getpid())};
    WEFT_TRY(read_seconds(&c->seconds));
    if (gethostname(c->host, sizeof c->host - 1) != 0 || !c->host[0])
        strcpy(c->host, "localhost");
    read_machine(c->machine);
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &tm);
    strftime(c->since, sizeof c->since, "%Y-%m-%d %H:%M:%S", &tm);
    uint64_t hash = XXH3_64bits(&now, sizeof now);
    hash = XXH3_64bits_withSeed(c, sizeof *c, hash);
    snprintf(c->token, sizeof c->token, "%s", weft_hex_print(hash, hex));
    return WEFT_OK;
}

static void name_of(const char *token, char name[64])
{
    snprintf(name, 64, "%s.json", token);
}

weft_status weft_owner_claim_write(weft_storage *storage, const weft_owner_claim *c)
{
    char name[64];
    name_of(c->token, name);
    json_t *json = json_pack("{s:s,s:I,s:s,s:s,s:I,s:I,s:f,s:s}", "host", c->host, "pid",
                             (json_int_t)c->pid, "since", c->since, "machine", c->machine, "start",
                             (json_int_t)c->start, "count", (json_int_t)c->count, "seconds",
                             c->seconds, "state", c->owns ? "owner" : "claiming");
    WEFT_TRY(WEFT_ALLOCATED(json, "the claim of a run; the name of this host may not be UTF-8"));
    const weft_status_code status = weft_storage_json_save(storage, name, json);
    json_decref(json);
    return status;
}

weft_status weft_owner_claim_remove(weft_storage *storage, const char *token)
{
    char name[64];
    name_of(token, name);
    return weft_storage_remove(storage, name);
}

static void copy_text(const json_t *json, const char *key, char *to, size_t bytes)
{
    const char *text = json_string_value(json_object_get(json, key));
    snprintf(to, bytes, "%s", text ? text : "");
}

static void read_claim(const json_t *json, weft_owner_claim *c)
{
    const char *state = json_string_value(json_object_get(json, "state"));
    copy_text(json, "host", c->host, sizeof c->host);
    copy_text(json, "machine", c->machine, sizeof c->machine);
    copy_text(json, "since", c->since, sizeof c->since);
    c->pid = json_integer_value(json_object_get(json, "pid"));
    c->start = json_integer_value(json_object_get(json, "start"));
    c->count = json_integer_value(json_object_get(json, "count"));
    c->seconds = json_number_value(json_object_get(json, "seconds"));
    c->owns = state && !strcmp(state, "owner");
}

/* A damaged claim has its token only, and counts as one of an unknown machine. *moved: the claim
 * was renewed or removed since the list was made. */
static weft_status load(weft_storage *storage, const char *name, weft_owner_claim *c, bool *moved)
{
    json_t *json = NULL;
    const weft_status_code status = weft_storage_json_load_uncached(storage, name, &json);
    *c = (weft_owner_claim){.owns = true, .seconds = 60};
    snprintf(c->token, sizeof c->token, "%.*s", (int)(strlen(name) - strlen(".json")), name);
    if (status == WEFT_OK)
        read_claim(json, c);
    json_decref(json);
    if (status == WEFT_OK)
        return WEFT_OK;
    const bool changed = weft_error_class() == WEFT_MSG_FILE_CHANGED ||
                         weft_error_class() == WEFT_MSG_FILE_NOT_FOUND;
    if (status != WEFT_E_FORMAT && !changed)
        return status;
    *moved |= changed;
    weft_error_clear();
    return WEFT_OK;
}

/* The list gives the storage the present versions, which the reads then compare. */
static weft_status list_once(weft_storage *storage, weft_owner_claim **claim, int64_t *count,
                             bool *moved)
{
    weft_names names = {0};
    weft_owner_claim *all = NULL;
    int64_t n = 0;
    weft_status_code status = WEFT_OK;
    *moved = false;
    WEFT_GO(weft_storage_list(storage, &names));
    WEFT_GO(WEFT_NEW(all, names.count + 1, "the claims of runs"));
    for (int64_t i = 0; i < names.count; i++)
        if (!strcmp(weft_path_extension(names.name[i]), "json") && strlen(names.name[i]) < 32)
            WEFT_GO(load(storage, names.name[i], &all[n++], moved));
    *claim = all;
    *count = n;
    all = NULL;
out:
    weft_free(all);
    weft_names_free(&names);
    return status;
}

weft_status weft_owner_claim_list(weft_storage *storage, weft_owner_claim **claim, int64_t *count)
{
    enum { ATTEMPTS = 5 };
    bool moved;
    WEFT_TRY(list_once(storage, claim, count, &moved));
    for (int i = 1; moved && i < ATTEMPTS; i++) {
        weft_free(*claim);
        WEFT_TRY(list_once(storage, claim, count, &moved));
    }
    return WEFT_OK;
}

weft_status weft_owner_claim_find(weft_storage *storage, weft_owner_claim *c, bool *exists)
{
    weft_owner_claim *all;
    int64_t count;
    WEFT_TRY(weft_owner_claim_list(storage, &all, &count));
    *exists = false;
    for (int64_t i = 0; i < count; i++)
        if (!strcmp(all[i].token, c->token)) {
            *c = all[i];
            *exists = true;
        }
    weft_free(all);
    return WEFT_OK;
}

weft_owner_life weft_owner_claim_life(const weft_owner_claim *c)
{
    char machine[96];
    read_machine(machine);
    if (strcmp(machine, c->machine) != 0)
        return WEFT_OWNER_ELSEWHERE;
    return weft_process_lives((long)c->pid) && process_start((long)c->pid) == c->start
               ? WEFT_OWNER_LIVES
               : WEFT_OWNER_DEAD;
}
