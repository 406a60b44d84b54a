#include "storage/copy_record.h"

#include "base/fs.h"

#include <sys/stat.h>

weft_status weft_copied_file_stat(const char *folder, const char *name, weft_copied_file *file)
{
    struct stat st;
    char *path = weft_path_join(folder, name);
    WEFT_TRY(WEFT_ALLOCATED(path, "%s", name));
    *file = (weft_copied_file){.known = true, .bytes = -1};
    if (stat(path, &st) == 0 && S_ISREG(st.st_mode)) {
        file->bytes = st.st_size;
        file->mtime = st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec;
    }
    weft_free(path);
    return WEFT_OK;
}

weft_status weft_copy_record_open(weft_copy_record *record)
{
    record->files = json_object();
    return WEFT_ALLOCATED(record->files, "the record of a copy");
}

void weft_copy_record_close(weft_copy_record *record)
{
    json_decref(record->files);
    record->files = NULL;
}

void weft_copy_record_clear(weft_copy_record *record)
{
    json_object_clear(record->files);
}

weft_status weft_copy_record_load(weft_copy_record *record, const char *path)
{
    json_t *files;
    weft_copy_record_clear(record);
    if (!weft_path_exists(path))
        return WEFT_OK;
    if (weft_json_load(path, &files) != WEFT_OK || !json_is_object(files)) {
        weft_error_clear();
        return WEFT_OK;
    }
    json_decref(record->files);
    record->files = files;
    return WEFT_OK;
}

weft_status weft_copy_record_save(const weft_copy_record *record, const char *path)
{
    return weft_json_save(path, record->files);
}

weft_copied_file weft_copy_record_get(const weft_copy_record *record, const char *name)
{
    const json_t *file = json_object_get(record->files, name);
    if (!json_is_object(file))
        return (weft_copied_file){.bytes = -1, .mtime = -1};
    return (weft_copied_file){.known = true,
                              .bytes = json_integer_value(json_object_get(file, "bytes")),
                              .mtime = json_integer_value(json_object_get(file, "mtime")),
                              .stamp = (uint64_t)json_integer_value(json_object_get(file, "stamp")),
                              .pending = json_is_true(json_object_get(file, "pending"))};
}

weft_status weft_copy_record_put(weft_copy_record *record, const char *name,
                                 const weft_copied_file *file)
{
    json_t *members = json_pack("{s:I,s:I,s:I,s:b}", "bytes", (json_int_t)file->bytes, "mtime",
                                (json_int_t)file->mtime, "stamp", (json_int_t)file->stamp,
                                "pending", file->pending);
    /* names that are not UTF-8 are written as they are only by other programs */
    return WEFT_ALLOCATED(members && json_object_set_new(record->files, name, members) == 0,
                          "the record of %s; the name may not be UTF-8", name);
}

void weft_copy_record_drop(weft_copy_record *record, const char *name)
{
    json_object_del(record->files, name);
}

int64_t weft_copy_record_count_settled(const weft_copy_record *record)
{
    const char *name;
    json_t *file;
    int64_t count = 0;
    json_object_foreach(record->files, name, file) count +=
        !json_is_true(json_object_get(file, "pending"));
    return count;
}
