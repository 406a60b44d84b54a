#ifndef WEFT_STORAGE_STORAGE_FOLDER_H
#define WEFT_STORAGE_STORAGE_FOLDER_H

#include "storage/storage.h"

/* The folder, in storage_folder.c. */
extern const weft_storage_kind weft_storage_folder;

#endif
