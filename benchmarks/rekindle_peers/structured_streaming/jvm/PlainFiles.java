package rekindle;

import java.io.IOException;
import java.net.URI;
import java.net.URISyntaxException;
import java.nio.file.Files;
import java.nio.file.attribute.PosixFilePermissions;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.DelegateToFileSystem;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FsConstants;
import org.apache.hadoop.fs.FsServerDefaults;
import org.apache.hadoop.fs.LocalFileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.local.LocalConfigKeys;
import org.apache.hadoop.fs.permission.FsPermission;

/**
 * The local file system for checkpoints of Structured Streaming, without a process per file.
 *
 * <p>Hadoop's own starts `chmod` for every file that it makes and `readlink` for every one that it
 * moves, where its native library is missing: hundreds a second for 18 queries, which a store that
 * is no folder would not cost. It is set as `fs.file.impl` and `fs.AbstractFileSystem.file.impl`.
 */
public final class PlainFiles extends LocalFileSystem {
  public PlainFiles() {
    super(new Raw());
    setWriteChecksum(false);
  }

  /** The same for Hadoop's other interface to file systems, which checkpoints are written with. */
  public static final class Plain extends DelegateToFileSystem {
    public Plain(URI uri, Configuration configuration) throws IOException, URISyntaxException {
      super(FsConstants.LOCAL_FS_URI, new Raw(), configuration, "file", false);
    }

    @Override
    public int getUriDefaultPort() {
      return -1;
    }

    @Override
    public FsServerDefaults getServerDefaults(Path path) throws IOException {
      return LocalConfigKeys.getServerDefaults();
    }

    @Override
    public boolean isValidName(String name) {
      return true;
    }
  }

  private static final class Raw extends RawLocalFileSystem {
    @Override
    public void setPermission(Path path, FsPermission permission) throws IOException {
      String wanted = permission.toString().replace('t', 'x').replace('T', '-');
      Files.setPosixFilePermissions(
          pathToFile(path).toPath(), PosixFilePermissions.fromString(wanted));
    }

    /** There are no links in a store. */
    @Override
    public FileStatus getFileLinkStatus(Path path) throws IOException {
      return getFileStatus(path);
    }
  }
}
