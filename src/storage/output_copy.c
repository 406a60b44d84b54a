#include "storage/output_copy.h"

#include "base/hex.h"
#include "base/log.h"
#include "storage/remote_files.h"

#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

struct weft_output_copy {
    char *location, *folder, *files, *path; /* owned; path: files/NAME */
    weft_storage *storage;                  /* of the location's parent */
    int lock;                               /* while the folder is in use; -1: none */
};

/* ---- open ---------------------------------------------------------------------------------- */

static weft_status fail_existing(const weft_output_copy *c)
{
    return weft_error(WEFT_MSG_FILE_EXISTS, WEFT_AT(.file = c->location),
                      "the output exists already; give another name, or move it");
}

static weft_status check_new(const weft_output_copy *c, const char *name)
{
    weft_storage *below = NULL;
    weft_storage_facts facts;
    weft_names names = {0};
    const weft_status_code status = weft_storage_facts_of(c->storage, name, &facts);
    if (status == WEFT_OK)
        return fail_existing(c);
    if (status != WEFT_E_NOT_FOUND || weft_error_class() != WEFT_MSG_FILE_NOT_FOUND)
        return status;
    weft_error_clear();
    WEFT_TRY(weft_storage_open(c->location, &below));
    const weft_status_code listed = weft_storage_list_all(below, &names);
    const bool exists = names.count > 0;
    weft_names_free(&names);
    weft_storage_close(below);
    WEFT_TRY(listed);
    return exists ? fail_existing(c) : WEFT_OK;
}

/* Splits the location into parent and name. */
static weft_status open_parent(weft_output_copy *c, const char **name)
{
    weft_buf parent = {0};
    size_t length = strlen(c->location);
    while (length > 0 && c->location[length - 1] == '/')
        c->location[--length] = 0;
    const char *scheme = strstr(c->location, "://"), *slash = strrchr(c->location, '/');
    if (!scheme || slash <= scheme + 3)
        return weft_error(WEFT_MSG_STORAGE_LOCATION, WEFT_AT(.file = c->location),
                          "the location has no name in the bucket; write s3://BUCKET/NAME");
    *name = slash + 1;
    weft_buf_append(&parent, c->location, slash - c->location);
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_buf_check(&parent));
    WEFT_GO(weft_storage_open(parent.data, &c->storage));
    WEFT_GO(weft_storage_check_writable(c->storage));
out:
    weft_buf_free(&parent);
    return status;
}

static void remove_leftovers(const char *copies)
{
    weft_names names = {0};
    if (weft_list_dir(copies, false, &names) != WEFT_OK)
        weft_error_clear();
    for (int64_t i = 0; i < names.count; i++) {
        char *path =
            strncmp(names.name[i], "new-", 4) ? NULL : weft_path_join(copies, names.name[i]);
        if (path)
            (void)weft_remote_copy_remove(path);
        weft_free(path);
    }
    weft_names_free(&names);
}

static weft_status make_folder(weft_output_copy *c, const char *name)
{
    const double now = weft_now();
    const int64_t process = getpid();
    uint64_t hash = XXH3_64bits(c->location, strlen(c->location));
    char hex[WEFT_HEX_BYTES], *copies;
    weft_buf folder = {0};
    WEFT_TRY(weft_remote_copies_folder(&copies));
    weft_status_code status = WEFT_OK;
    remove_leftovers(copies);
    hash = XXH3_64bits_withSeed(&now, sizeof now, hash);
    hash = XXH3_64bits_withSeed(&process, sizeof process, hash);
    weft_buf_printf(&folder, "%s/new-%s", copies, weft_hex_print(hash, hex));
    c->folder = folder.data;
    WEFT_GO(weft_buf_check(&folder));
    c->files = weft_path_join(c->folder, "files");
    WEFT_GO(WEFT_ALLOCATED(c->files, "%s", c->location));
    WEFT_GO(WEFT_ALLOCATED(c->path = weft_path_join(c->files, name), "%s", c->location));
    WEFT_GO(weft_remote_copy_lock(c->folder, LOCK_EX, &c->lock));
    status = weft_make_dirs(c->files);
out:
    weft_free(copies);
    return status;
}

static weft_status open_copy(const char *location, bool replaces, weft_output_copy **copy)
{
    weft_output_copy *c;
    const char *name = NULL;
    WEFT_TRY(WEFT_NEW(c, 1, "%s", location));
    c->lock = -1;
    c->location = weft_strdup(location);
    weft_status_code status = WEFT_OK;
    WEFT_GO(WEFT_ALLOCATED(c->location, "%s", location));
    WEFT_GO(open_parent(c, &name));
    if (!replaces)
        WEFT_GO(check_new(c, name));
    WEFT_GO(make_folder(c, name));
    *copy = c;
    return WEFT_OK;
out:
    weft_output_copy_close(c);
    return status;
}

weft_status weft_output_copy_open(const char *location, weft_output_copy **copy)
{
    return open_copy(location, false, copy);
}

weft_status weft_output_copy_open_file(const char *location, weft_output_copy **copy)
{
    return open_copy(location, true, copy);
}

const char *weft_output_copy_path(const weft_output_copy *copy)
{
    return copy->path;
}

void weft_output_copy_close(weft_output_copy *c)
{
    if (!c)
        return;
    weft_storage_close(c->storage);
    if (c->lock >= 0)
        close(c->lock);
    if (c->folder) {
        weft_error_copy *error = weft_error_save();
        (void)!weft_remove_tree(c->folder);
        weft_error_restore(error);
        weft_free(error);
    }
    weft_free(c->location);
    weft_free(c->folder);
    weft_free(c->files);
    weft_free(c->path);
    weft_free(c);
}

/* ---- send ---------------------------------------------------------------------------------- */

/* Order of a file in the send. */
static int step_of(const char *name)
{
    return !strcmp(weft_path_base(name), "model_index.json") ? 2
           : !strcmp(weft_path_extension(name), "json")      ? 1
                                                             : 0;
}

static weft_status describe(const weft_output_copy *c, const char *name, weft_remote_file *file)
{
    struct stat st;
    char *path = weft_path_join(c->files, name);
    WEFT_TRY(WEFT_ALLOCATED(path, "%s", name));
    const bool known = stat(path, &st) == 0;
    *file = (weft_remote_file){.name = name, .bytes = known ? st.st_size : 0};
    const weft_status_code status =
        known ? WEFT_OK : weft_error_errno(WEFT_AT(.file = path), "cannot read the file");
    weft_free(path);
    return status;
}

weft_status weft_output_copy_send(weft_output_copy *c)
{
    enum { STEPS = 3 };
    weft_names names = {0};
    weft_remote_file *file = NULL;
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_list_dir(c->files, true, &names));
    WEFT_GO(WEFT_NEW(file, names.count + 1, "%s", c->location));
    for (int step = 0; step < STEPS; step++) {
        int64_t count = 0;
        for (int64_t i = 0; i < names.count; i++)
            if (step_of(names.name[i]) == step)
                WEFT_GO(describe(c, names.name[i], &file[count++]));
        WEFT_GO(weft_remote_send(c->storage, file, count, c->files));
    }
out:
    weft_free(file);
    weft_names_free(&names);
    return status;
}
