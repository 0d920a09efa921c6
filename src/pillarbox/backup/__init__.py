"""Back up a store while it is in use, restore it, and move messages between mailboxes."""

from pillarbox.backup.copying import BackupError, backup
from pillarbox.backup.files import BrokerFiles, Files, StoreFiles
from pillarbox.backup.moving import Moved, move

__all__ = ["BackupError", "BrokerFiles", "Files", "Moved", "StoreFiles", "backup", "move"]
